#include "supervisor/control/event_log.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace dt::supervisor {
namespace {

std::string_view name_of(Note::Kind kind) {
  constexpr std::string_view kNames[] = {"info",    "launch",  "commit",
                                         "refusal", "failure", "measure"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// To three decimals; a whole number has none.
nlohmann::json number(double value) {
  constexpr double kMostWhole = 1e15;  // a double is exact up to there
  const double rounded = std::round(value * 1000) / 1000;
  if (std::abs(rounded) > kMostWhole || rounded != std::trunc(rounded)) return rounded;
  return static_cast<std::int64_t>(rounded);
}

}  // namespace

void EventLog::tell(const Note& note, const Place& place) {
  const bool bad = note.kind == Note::Kind::kFailure || note.kind == Note::Kind::kRefusal;
  if (note.kind != Note::Kind::kMeasure)
    console_.line(bad ? io::Level::kWarning : io::Level::kInfo, note.text);

  nlohmann::json event{{"n", first_ + events_.size()},
                       {"time_ns", place.wall_ns},
                       {"kind", name_of(note.kind)},
                       {"event", note.what},
                       {"text", note.text},
                       {"generation", place.generation.value}};
  if (place.epoch) event["epoch"] = place.epoch->value;
  if (place.rank) event["rank"] = place.rank->value;
  for (const auto& [name, value] : note.numbers) event[name] = number(value);
  if (note.worker) event["worker"] = note.worker->value;
  if (note.host) event["host"] = to_string(*note.host);
  if (note.line) event["seq"] = note.line->seq;
  // A text may contain output of a user's command: bytes that are not UTF-8 are replaced.
  std::string line = event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  append_event_(line + "\n");
  events_.push_back(std::move(line));
  if (events_.size() > kKept) {
    events_.pop_front();
    ++first_;
  }
}

std::string EventLog::events_json(std::uint64_t from) const {
  const std::uint64_t end = first_ + events_.size();
  const std::uint64_t begin = std::clamp(from, first_, end);
  std::string out = R"({"ok":true,"events":[)";
  for (std::uint64_t n = begin; n < end; ++n) {
    if (n > begin) out += ',';
    out += events_[static_cast<std::size_t>(n - first_)];
  }
  out += fmt::format(R"(],"next":{}}})", end);
  return out;
}

}  // namespace dt::supervisor
