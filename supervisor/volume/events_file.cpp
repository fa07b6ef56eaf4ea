#include "supervisor/volume/events_file.h"

#include <nlohmann/json.hpp>

namespace dt::supervisor {

using io::awaitable;

namespace {
constexpr std::size_t kMostEvents = std::size_t{64} << 20;  ///< Bytes, of earlier terms.
}  // namespace

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

awaitable<Result<void>> EventsFile::catch_up() {
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

awaitable<Result<KnownEvents>> EventFiles::open(bool is_new, io::Log& log,
                                                std::function<void(const Error&)> on_error) {
  if (is_new) {
    auto made = co_await volume_.replace(path_, "");
    if (!made) co_return tl::unexpected(made.error());
  }
  auto text = co_await read(log);
  if (!text) co_return tl::unexpected(text.error());
  KnownEvents told{kAnySize, 0, {}};
  if (*text) {
    told = told_events(**text);
    if (told.bytes < (*text)->size()) {
      auto cut = co_await volume_.truncate(path_, told.bytes);
      if (!cut) co_return tl::unexpected(cut.error());
      (*text)->resize(told.bytes);
    }
  }
  files_.emplace_back(volume_, path_, told.bytes);
  if (seen_at_) {
    auto shown = co_await show(std::move(*text));
    if (!shown) co_return tl::unexpected(shown.error());
  }
  for (EventsFile& file : files_) file.on_error = on_error;
  co_return std::move(told);
}

awaitable<Result<std::optional<std::string>>> EventFiles::read(io::Log& log) {
  auto text = co_await volume_.read(path_, kMostEvents);
  if (text) co_return text->value_or("");
  if (text.error().kind == ErrorKind::kTimeout) co_return tl::unexpected(text.error());
  log.warn("cannot read the earlier events: {}", text.error().message);
  co_return std::nullopt;
}

awaitable<Result<void>> EventFiles::show(std::optional<std::string> text) {
  auto linked = co_await link_below(volume_, *seen_at_, path_);
  if (!linked) co_return tl::unexpected(linked.error());
  if (*linked) co_return Result<void>();
  if (text) {
    auto copied = co_await volume_.replace(*seen_at_, *text);
    if (!copied) co_return copied;
  }
  files_.emplace_back(volume_, *seen_at_, text ? text->size() : kAnySize);
  co_return Result<void>();
}

void EventFiles::add(std::string_view line) {
  for (EventsFile& file : files_) file.add(line);
}

awaitable<bool> EventFiles::finish(Duration limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  bool done = true;
  for (EventsFile& file : files_)
    done &= co_await file.finish(until - std::chrono::steady_clock::now());
  co_return done;
}

}  // namespace dt::supervisor
