#include "supervisor/volume/events_file.h"

#include <nlohmann/json.hpp>

namespace dt::supervisor {

KnownEvents told_events(std::string_view text) {
  KnownEvents told;
  for (;;) {
    const std::size_t end = text.find('\n', told.bytes);
    if (end == std::string_view::npos) return told;
    const std::string_view line = text.substr(told.bytes, end - told.bytes);
    told.bytes = end + 1;
    ++told.next;
    if (line.find("\"seq\":") == std::string_view::npos) continue;
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object()) continue;
    const auto seq = event.find("seq");
    if (seq != event.end() && seq->is_number_unsigned())
      told.log_lines.insert(seq->get<std::uint64_t>());
  }
}

void EventsFile::add(std::string_view line) {
  missing_ += line;
  wake();
}

io::awaitable<Result<void>> EventsFile::catch_up() {
  const std::string lines = missing_;
  auto appended = co_await volume_.append(path_, lines, size_);
  if (!appended && appended.error().kind == ErrorKind::kInvalid) {
    size_ = kAnySize;
    appended = co_await volume_.append(path_, lines);
  }
  if (!appended) co_return appended;
  if (size_ != kAnySize) size_ += lines.size();
  missing_.erase(0, lines.size());
  co_return Result<void>();
}

}  // namespace dt::supervisor
