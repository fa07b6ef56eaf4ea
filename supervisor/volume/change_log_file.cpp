#include "supervisor/volume/change_log_file.h"

namespace dt::supervisor {

namespace {
/// A line has some fifty bytes: more than a million changes.
constexpr std::size_t kMostLog = std::size_t{64} << 20;
}  // namespace

void ChangeLogFile::add(const std::vector<LogLine>& lines) {
  for (const LogLine& line : lines) text_ += format_change(line);
  if (!lines.empty()) look();
}

void ChangeLogFile::look() {
  ++asked_;
  wake();
}

io::awaitable<Result<void>> ChangeLogFile::catch_up() {
  const std::uint64_t asked = asked_;
  const std::string whole = text_;
  auto mended = co_await mend(path_, whole);
  if (mended) mended = co_await mend(seen_at_, whole);
  if (mended) looked_ = asked;
  co_return mended;
}

io::awaitable<Result<void>> ChangeLogFile::mend(std::string path, std::string whole) {
  auto text = co_await volume_.read(path, kMostLog);
  if (!text) co_return tl::unexpected(text.error());
  if (*text && !whole.starts_with(**text)) {
    const std::string moved = path_ + ".foreign";
    auto renamed = co_await volume_.rename(path, moved);
    if (!renamed) co_return renamed;
    text->reset();
    foreign_ = moved;
    if (on_foreign) on_foreign(moved);
  }
  if (!*text && path == seen_at_) {
    auto linked = co_await link_below(volume_, path, path_);
    if (!linked || *linked) co_return linked.map([](bool) {});
  }
  const std::size_t there = *text ? (*text)->size() : 0;
  if (*text && there == whole.size()) co_return Result<void>();
  co_return co_await volume_.append(path, whole.substr(there), there, true);
}

}  // namespace dt::supervisor
