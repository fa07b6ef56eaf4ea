#include "trainer/worker_log.h"

#include <cerrno>

namespace dt::train {

Result<EventLog> EventLog::open(std::string path, std::uint32_t worker_id) {
  if (const auto at = path.find("%i"); at != std::string::npos)
    path.replace(at, 2, std::to_string(worker_id));
  std::FILE* file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) return tl::unexpected(errno_error(errno, "open log " + path));
  return EventLog(file, worker_id);
}

void EventLog::line(std::int64_t t_ns, const std::string& more) {
  fmt::print(file_.get(),
             "{{\"t_ns\":{},\"worker\":{},\"rank\":{},\"world\":{},\"epoch\":{},{}}}\n", t_ns,
             worker_id_, view_.rank, view_.num_workers, view_.epoch, more);
  std::fflush(file_.get());
}

void EventLog::boundary(const BoundaryEnd& end) {
  line(end.enter_ns, "\"event\":\"boundary_enter\"");
  if (end.left) {
    line(end.leave_ns, "\"event\":\"boundary_leave\",\"result\":\"leave\"");
    return;
  }
  view_ = end.view;
  line(
      end.leave_ns,
      fmt::format("\"event\":\"boundary_leave\",\"result\":\"ok\",\"generation\":{},\"changed\":{}",
                  view_.generation, view_.changed));
}

void EventLog::step(const BatchEnd& end) {
  line(end.end_ns,
       fmt::format("\"event\":\"step\",\"step\":{},\"begin_ns\":{},\"samples\":{},\"loss\":{:.6g}",
                   end.step, end.begin_ns, end.samples, end.loss));
}

void EventLog::epoch(const EpochEnd& end) {
  line(end.end_ns, fmt::format("\"event\":\"epoch\",\"accuracy\":{:.4f},\"samples\":{},"
                               "\"seconds\":{:.3f}",
                               end.eval_accuracy, end.samples, end.seconds));
}

}  // namespace dt::train
