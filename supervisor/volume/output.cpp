#include "supervisor/volume/output.h"

#include "io/asio.h"
#include "supervisor/volume/client.h"

namespace dt::supervisor {
namespace {

constexpr Duration kBatchTime = std::chrono::milliseconds(200);
constexpr std::size_t kBatchBytes = std::size_t{64} << 10;

std::string file_of(ProcessId process, const Host& host) {
  switch (process.role) {
    case Role::kServer:
      return fmt::format("server-{}.log", process.id);
    case Role::kWorker:
      return fmt::format("worker-{}.log", process.id);
    case Role::kPrepare:
      return fmt::format("prepare-{}.log", host.name);
  }
  return "other.log";
}

}  // namespace

void ProcessOutput::open(ProcessId process, const Host& host) {
  std::string prefix;
  if (options_.prefix)
    prefix = process.role == Role::kPrepare
                 ? fmt::format("[prepare-data {}] ", host.name)
                 : fmt::format("[{} {}] ", to_string(process), host.name);
  streams_.try_emplace(process, Stream{options_.folder + "/" + file_of(process, host), "",
                                       io::LinePrefixer(prefix), io::LinePrefixer(prefix)});
}

void ProcessOutput::write(const dt::Output& message) {
  const auto it = streams_.find(message.process);
  if (it == streams_.end()) return;
  Stream& stream = it->second;
  if (message.lost_before > 0)
    stream.collected +=
        fmt::format("\n[dtlaunch: {} bytes of output were lost here]\n", message.lost_before);
  stream.collected += message.bytes;
  if (stream.collected.size() >= kBatchBytes) store(stream);
  show(message.is_stderr, (message.is_stderr ? stream.err : stream.out).feed(message.bytes));
}

void ProcessOutput::close(ProcessId process) {
  const auto it = streams_.find(process);
  if (it == streams_.end()) return;
  show(false, it->second.out.finish());
  show(true, it->second.err.finish());
  store(it->second);
  streams_.erase(it);
}

void ProcessOutput::close_all() {
  while (!streams_.empty()) close(streams_.begin()->first);
}

io::awaitable<void> ProcessOutput::run() {
  for (int batches = 0;; ++batches) {
    co_await io::sleep_for(kBatchTime);
    for (auto& [process, stream] : streams_) {
      store(stream);
      if (batches % 5 != 0) continue;
      show(false, stream.out.take_progress());
      show(true, stream.err.take_progress());
    }
  }
}

void ProcessOutput::store(Stream& stream) {
  if (stream.collected.empty()) return;
  volume_.queue_append(stream.file, std::move(stream.collected), options_.limit);
  stream.collected.clear();
}

}  // namespace dt::supervisor
