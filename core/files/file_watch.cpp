#include "core/files/file_watch.h"

#include <algorithm>

namespace dt {

FileWatch::FileWatch(std::string accepted, Options options)
    : options_(std::move(options)), accepted_(std::move(accepted)), judged_(true) {
  seen_.text = accepted_;
}

Duration FileWatch::needed() const {
  const bool finished = seen_.kind == Observation::Kind::kContent && seen_.text.ends_with('\n');
  return finished ? options_.settle : options_.settle_unfinished;
}

FileWatchResult FileWatch::observe(Observation seen, Time now) {
  if (seen != seen_) {
    seen_ = std::move(seen);
    since_ = now;
    judged_ = false;
    return {};
  }
  if (judged_ || now - since_ < needed()) return {};
  judged_ = true;
  return judge();
}

FileWatchResult FileWatch::judge() {
  if (seen_.kind == Observation::Kind::kAbsent)
    return refuse(fmt::format("{} is gone", options_.name));
  if (seen_.kind == Observation::Kind::kUnreadable)
    return refuse(fmt::format("{} cannot be read ({})", options_.name, seen_.text));
  if (seen_.text == accepted_) {
    if (!refusal_) return {};
    refusal_.reset();
    return FileCleared{};
  }
  auto lines = parse_hosts(seen_.text, options_.name);
  if (!lines) return refuse(lines.error().message);
  if (lines->empty()) return refuse(fmt::format("{} names no host", options_.name));
  refusal_.reset();
  accepted_ = seen_.text;
  return FileAccepted{accepted_, std::move(*lines)};
}

FileWatchResult FileWatch::refuse(std::string why) {
  why += "; the edit is refused as a whole and the last good list stays";
  if (refusal_ == why) return {};
  refusal_ = why;
  return FileRefused{std::move(why)};
}

Time FileWatch::next_look(Time now) const {
  const Time poll = now + options_.poll;
  if (judged_) return poll;
  return std::min(poll, std::max(now, since_ + needed()));
}

}  // namespace dt
