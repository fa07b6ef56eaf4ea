#include "supervisor/volume/change_log_file.h"

namespace dt::supervisor {

namespace {
/// A line has some fifty bytes: more than a million changes.
constexpr std::size_t kMostLog = std::size_t{64} << 20;
}  // namespace

void ChangeLogFile::add(const std::vector<LogLine>& lines) {
  lines_.insert(lines_.end(), lines.begin(), lines.end());
  if (!lines.empty()) wake();
}

io::awaitable<Result<void>> ChangeLogFile::catch_up() {
  const std::size_t until = lines_.size();
  auto text = co_await volume_.read(path_, kMostLog);
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

}  // namespace dt::supervisor
