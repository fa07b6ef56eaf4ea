#include "kvstore/checkpoint/writer.h"

#include <filesystem>
#include <utility>

namespace dt::kv {
namespace {

Result<WrittenFile> write_task(const SavedWriter::Task& task, const std::atomic<bool>& stopping) {
  std::error_code ec;
  std::filesystem::create_directories(task.folder, ec);
  if (ec) return fail(ErrorKind::kIo, "make folder {}: {}", task.folder, ec.message());
  const std::string path = task.folder + "/" + io::checkpoint_file(task.by.server);
  return write_saved(path, task.by, task.loops, [&stopping] { return stopping.load(); });
}

}  // namespace

SavedWriter::SavedWriter(Done done) : done_(std::move(done)), thread_([this] { run(); }) {}

SavedWriter::~SavedWriter() {
  stopping_ = true;
  {
    const std::lock_guard lock(mutex_);
    task_.reset();
  }
  wake_.notify_all();
  thread_.join();
}

void SavedWriter::submit(Task task) {
  {
    const std::lock_guard lock(mutex_);
    task_ = std::move(task);
  }
  wake_.notify_all();
}

void SavedWriter::run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stopping_ || task_; });
    if (stopping_) return;
    Task task = *std::exchange(task_, std::nullopt);
    lock.unlock();
    auto written = write_task(task, stopping_);
    busy_ = false;
    done_(std::move(task), std::move(written));
  }
}

}  // namespace dt::kv
