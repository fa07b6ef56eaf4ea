/// --log: a worker's boundaries and steps with their times, as JSON lines; test/bench/pause_bench
/// reads them.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "trainer/module.h"

namespace dt::train {

class EventLog {
 public:
  /// Appends to `path`, in which %i becomes the worker id.
  static Result<EventLog> open(std::string path, std::uint32_t worker_id);

  void boundary(const BoundaryEnd& end);
  void step(const BatchEnd& end);
  void epoch(const EpochEnd& end);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  EventLog(std::FILE* file, std::uint32_t worker_id) : file_(file), worker_id_(worker_id) {}
  /// Writes time and worker, then `more`, and flushes, so that a killed worker's log is complete.
  void line(std::int64_t t_ns, const std::string& more);

  std::unique_ptr<std::FILE, Close> file_;
  std::uint32_t worker_id_;
  dtkv_view view_{};
};

}  // namespace dt::train
