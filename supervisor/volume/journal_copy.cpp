#include "supervisor/volume/journal_copy.h"

namespace dt::supervisor {

void JournalCopy::add(std::string_view bytes) {
  bytes_ += bytes;
  wake();
}

void JournalCopy::replace(std::string bytes) {
  bytes_ = std::move(bytes);
  ++journals_;
  is_whole_ = false;
  wake();
}

io::awaitable<Result<void>> JournalCopy::catch_up() {
  const std::size_t until = bytes_.size();
  const std::uint64_t journal = journals_;
  bool is_done = false;
  if (std::exchange(is_whole_, false)) {
    // Once this has failed, a part may have been written.
    auto appended =
        co_await volume_.append(path_, bytes_.substr(written_, until - written_), written_);
    const bool was_changed = !appended && appended.error().kind == ErrorKind::kInvalid;
    if (!appended && !was_changed) co_return appended;
    is_done = !was_changed || journal != journals_;
  }
  if (!is_done) {
    auto replaced = co_await volume_.replace(path_, bytes_.substr(0, until), 0600);
    if (!replaced) co_return replaced;
  }
  if (journal != journals_) co_return Result<void>();  // it is behind again
  is_whole_ = true;
  written_ = until;
  co_return Result<void>();
}

}  // namespace dt::supervisor
