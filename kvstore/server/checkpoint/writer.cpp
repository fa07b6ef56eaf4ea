#include "kvstore/server/checkpoint/writer.h"

#include <pthread.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <filesystem>
#include <utility>

#include "kvstore/compute/device_engine.h"

namespace dt::kv {
namespace {

/// Chunks that are copied under one lock of the guard, during which the loop may not move them.
constexpr std::size_t kAtOnce = 16;

/// The loop's chunks with all arrays in host memory. The references stay with the task.
Result<SavedLoop> on_host(const SavedLoop& saved) {
  SavedLoop out = saved;
  for (std::size_t begin = 0; begin < out.chunks.size(); begin += kAtOnce) {
    const std::size_t end = std::min(begin + kAtOnce, out.chunks.size());
    const std::lock_guard lock(*saved.guard);
    std::vector<const Payload*> ours;
    for (std::size_t i = begin; i < end; ++i)
      for (const auto& array : out.chunks[i].arrays)
        ours.push_back(array && array->memory() == Memory::kDevice ? array.get() : nullptr);
    auto fetched = DeviceEngine::fetch(saved.device, ours);
    if (!fetched) return tl::unexpected(fetched.error());
    auto next = fetched->begin();
    for (std::size_t i = begin; i < end; ++i)
      for (auto& array : out.chunks[i].arrays)
        if (auto copy = std::move(*next++)) array = std::move(copy);
  }
  return out;
}

Result<WrittenFile> write_task(const SavedWriter::Task& task, const std::atomic<bool>& stopping) {
  std::error_code ec;
  std::filesystem::create_directories(task.folder, ec);
  if (ec) return fail(ErrorKind::kIo, "make folder {}: {}", task.folder, ec.message());
  const std::string path = task.folder + "/" + io::checkpoint_file(task.by.server);
  const auto give_up = [&stopping] { return stopping.load(); };
  std::vector<SavedLoop> copies;
  for (const auto& loop : task.loops) {
    auto copy = loop.guard ? on_host(loop) : Result<SavedLoop>(loop);
    if (!copy) return tl::unexpected(copy.error());
    copies.push_back(std::move(*copy));
  }
  return write_saved(path, task.by, copies, give_up);
}

}  // namespace

void SavedWriter::stop() {
  stopping_ = true;
  thread_.stop();
  thread_.join();
}

void SavedWriter::submit(Task task) {
  io::asio::post(thread_, [this, task = std::move(task)]() mutable {
    ::pthread_setname_np(::pthread_self(), "kv-save");
    auto written = write_task(task, stopping_);
    busy_ = false;
    done_(std::move(task), std::move(written));
  });
}

}  // namespace dt::kv
