#include "supervisor/change_log_file.h"

namespace dt::supervisor {

namespace {
constexpr Duration kRetry = std::chrono::seconds(1);
}

ChangeLogFile::ChangeLogFile(io::asio::any_io_executor executor, VolumeClient& volume,
                             std::string path)
    : volume_(volume),
      path_(std::move(path)),
      wake_(executor, io::asio::steady_timer::time_point::max()) {}

void ChangeLogFile::add(const std::vector<LogLine>& lines) {
  lines_.insert(lines_.end(), lines.begin(), lines.end());
  if (!lines.empty()) wake_.cancel();
}

io::awaitable<void> ChangeLogFile::run() {
  while (!ended_) {
    if (written_ == lines_.size()) {
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

io::awaitable<Result<void>> ChangeLogFile::catch_up() {
  const std::size_t until = lines_.size();
  auto text = co_await volume_.read(path_);
  if (!text) co_return tl::unexpected(text.error());
  const std::string present = text->value_or("");
  const std::vector<LogLine> wanted(lines_.begin(),
                                    lines_.begin() + static_cast<std::ptrdiff_t>(until));
  auto work = change_log_work(present, wanted);
  if (!work) co_return tl::unexpected(work.error().at(path_));
  if (work->keep < present.size()) {
    auto cut = co_await volume_.truncate(path_, work->keep);
    if (!cut) co_return cut;
  }
  if (!work->bytes.empty()) {
    auto appended = co_await volume_.append(path_, work->bytes, work->keep, true);
    if (!appended) co_return appended;
  }
  written_ = until;
  co_return Result<void>();
}

io::awaitable<bool> ChangeLogFile::finish(Duration limit) {
  finishing_ = true;
  wake_.cancel();
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!ended_ && std::chrono::steady_clock::now() < deadline)
    co_await io::sleep_for(std::chrono::milliseconds(10));
  ended_ = true;
  wake_.cancel();
  co_return written_ == lines_.size();
}

}  // namespace dt::supervisor
