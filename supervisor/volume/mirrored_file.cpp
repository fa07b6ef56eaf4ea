#include "supervisor/volume/mirrored_file.h"

namespace dt::supervisor {

namespace {
constexpr Duration kRetry = std::chrono::seconds(1);
}

io::awaitable<Result<bool>> link_below(VolumeClient& volume, std::string name, std::string file) {
  return volume.link(name, file.substr(name.rfind('/') + 1));
}

MirroredFile::MirroredFile(VolumeClient& volume, std::string path)
    : volume_(volume),
      path_(std::move(path)),
      wake_(volume.executor(), io::asio::steady_timer::time_point::max()) {}

io::awaitable<void> MirroredFile::run() {
  while (!ended_) {
    if (!is_behind()) {
      if (finishing_) break;
      wake_.expires_at(io::asio::steady_timer::time_point::max());
      co_await wake_.async_wait(io::tok);
      continue;
    }
    auto done = co_await catch_up();
    if (done) {
      last_error_.clear();
      continue;
    }
    if (done.error().message != last_error_ && on_error) on_error(done.error());
    last_error_ = done.error().message;
    wake_.expires_after(kRetry);
    co_await wake_.async_wait(io::tok);
  }
  ended_ = true;
}

io::awaitable<bool> MirroredFile::finish(Duration limit) {
  finishing_ = true;
  wake_.cancel();
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!ended_ && std::chrono::steady_clock::now() < deadline)
    co_await io::sleep_for(std::chrono::milliseconds(10));  // tidy: allow (run() has no end event)
  ended_ = true;
  wake_.cancel();
  co_return !is_behind();
}

}  // namespace dt::supervisor
