#include "supervisor/dtctl/condition.h"

#include <algorithm>
#include <array>
#include <boost/algorithm/string/case_conv.hpp>
#include <compare>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/number.h"
#include "core/files/host_names.h"
#include "io/job/status_fields.h"
#include "io/spelling.h"

namespace dt::supervisor {
namespace {

using nlohmann::json;

constexpr std::string_view kSpaces = " \t\n";

/// Short names of fields of the status.
const std::map<std::string_view, std::string_view> kFacts{
    {"epoch", ".epoch"},
    {"generation", ".generation"},
    {"term", ".term"},
    {"state", ".state"},
    {"workers", ".world_size"},
    {"checkpoint", ".checkpoint.newest"},
    {"members", ".workers[state=MEMBER].id"},
    {"newcomers", ".workers[state!=MEMBER,state!=LEAVING,state!=STOPPING].length"},
    {"servers", ".servers[state=listening].length"}};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

/// Takes the first word off `text`.
std::string_view take_word(std::string_view& text) {
  text = trimmed(text);
  const std::size_t end = std::min(text.find_first_of(kSpaces), text.size());
  const std::string_view word = text.substr(0, end);
  text = trimmed(text.substr(end));
  return word;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

/// A text as it is, a list with commas, anything else in JSON.
std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string out;
  for (const json& item : value) out += (out.empty() ? "" : ",") + text_of(item);
  return out;
}

}  // namespace

/// Reads one condition's text.
class Condition::Reader {
 public:
  explicit Reader(std::string_view text) : rest_(trimmed(text)) { out_.text_ = rest_; }

  Result<Condition> read() {
    const auto done = rest_.starts_with('.') ? path() : words();
    return done.map([this] { return std::move(out_); });
  }

 private:
  tl::unexpected<Error> refuse(std::string_view why) const {
    return fail(ErrorKind::kInvalid, "\"{}\": {}", out_.text_, why);
  }

  Result<void> words() {
    const std::size_t end =
        std::min(rest_.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_ = trimmed(rest_.substr(end));
    if (word == "worker" || word == "server" || word == "host") return thing(word);
    if (word == "event") return event();
    if (word == "ended") {
      out_.subject_ = Subject::kEnd;
      if (!rest_.empty()) return comparison();
      out_.operator_ = Operator::kAtLeast;
      out_.value_ = "0";
      return {};
    }
    const auto fact = kFacts.find(word);
    if (fact == kFacts.end())
      return refuse(
          "not a condition. Write epoch, workers, newcomers, members, servers, checkpoint, "
          "generation, term or state with a value, as in epoch>=3; \"worker 3 member\"; \"server 0 "
          "listening\"; \"host 10.0.0.3 lost\"; \"event worker_added\"; ended; or a field of dtctl "
          "status --json, as in .volume.stalled_s>2");
    const std::string_view value = std::exchange(rest_, fact->second);
    static_cast<void>(fields());
    rest_ = value;
    return comparison();
  }

  Result<void> thing(std::string_view kind) {
    const std::string_view name = take_word(rest_);
    const std::string_view state = take_word(rest_);
    const bool is_host = kind == "host";
    if (state.empty() || !rest_.empty())
      return refuse(fmt::format("{} and its state were expected, as in \"{}\"",
                                is_host ? "a host" : "a number",
                                is_host            ? "host 10.0.0.3 lost"
                                : kind == "server" ? "server 0 listening"
                                                   : "worker 3 member"));
    if (!is_host && !is_number(name))
      return refuse(fmt::format("the {}'s number was expected, not {}", kind, name));
    using Words = std::set<std::string, std::less<>>;
    static const Words kLife{"alive", "suspect", "lost"};
    static const Words kLink{"none", "attaching", "up", "down"};
    static const Words kServer{"starting", "listening", "silent"};
    static const Words kWorker{"SEEN",   "PREPARING", "STARTING", "WARM",
                               "MEMBER", "LEAVING",   "STOPPING"};
    const Words& known = kind == "worker" ? kWorker : kServer;
    out_.value_ = kind == "worker" ? boost::to_upper_copy(std::string(state)) : std::string(state);
    if (is_host && !kLife.contains(state) && !kLink.contains(state))
      return refuse(fmt::format("{} is no state of a host: {}, and of its link {} are", state,
                                fmt::join(kLife, ", "), fmt::join(kLink, ", ")));
    if (!is_host && !known.contains(out_.value_))
      return refuse(
          fmt::format("{} is no state of a {}: {} are", state, kind, fmt::join(known, ", ")));
    const std::string field = !is_host ? "state" : kLife.contains(state) ? "life" : "link";
    const std::string by = is_host ? "host" : "id";
    out_.path_ = {{std::string(kind) + "s", {{by, true, std::string(name)}}}, {field, {}}};
    return {};
  }

  /// NAME [>=N] [~ PATTERN]
  Result<void> event() {
    out_.subject_ = Subject::kEvents;
    const std::size_t end = std::min(rest_.find_first_of("=!<>~ \t\n"), rest_.size());
    out_.event_ = rest_.substr(0, end);
    rest_ = trimmed(rest_.substr(end));
    if (out_.event_.empty())
      return refuse("an event's name was expected, as dtctl events --json shows it");
    out_.operator_ = Operator::kAtLeast;
    out_.value_ = "1";
    const std::size_t tilde = std::min(rest_.find('~'), rest_.size());
    std::string_view pattern = rest_.substr(tilde);
    rest_ = trimmed(rest_.substr(0, tilde));
    if (!rest_.empty()) {
      if (auto counted = comparison(); !counted) return counted;
      if (!is_number(out_.value_)) return refuse("how many such events? A number was expected");
    }
    if (pattern.empty()) return {};
    return regular_expression(trimmed(pattern.substr(1)));
  }

  Result<void> path() {
    if (auto done = fields(); !done) return done;
    rest_ = trimmed(rest_);
    return comparison();
  }

  /// .field[filter,...].field...
  Result<void> fields() {
    constexpr std::string_view kEnds = ".[=!<>~ \t";
    for (std::string at; rest_.starts_with('.');) {
      rest_.remove_prefix(1);
      Step step;
      const std::size_t end = std::min(rest_.find_first_of(kEnds), rest_.size());
      step.field = rest_.substr(0, end);
      rest_.remove_prefix(end);
      if (step.field.empty()) return refuse("a field's name was expected after \".\"");
      while (rest_.starts_with('[')) {
        const std::size_t close = rest_.find(']');
        if (close == rest_.npos) return refuse("\"]\" is missing");
        if (!filters(rest_.substr(1, close - 1), step.filters))
          return refuse("what stands in [] was expected to be FIELD=VALUE or FIELD!=VALUE");
        rest_.remove_prefix(close + 1);
      }
      if (auto known = check(step, at); !known) return known;
      out_.path_.push_back(std::move(step));
    }
    return {};
  }

  /// Goes from `at` to its fields; refuses a step that the rows of the status do not have.
  Result<void> check(const Step& step, std::string& at) const {
    const bool is_count = step.field == "length" && at.find("[]") != at.npos;
    if (is_count) at += "length.";
    auto known = is_count ? Result<void>() : enter(step.field, at);
    if (known && !step.filters.empty() && !at.ends_with("[]."))
      return refuse(fmt::format("{} is no list, of which [] selects items", step.field));
    for (const Filter& filter : step.filters)
      if (std::string item = at; known) known = enter(filter.field, item);
    return known;
  }
  /// `at` is empty, or a path as StatusPath has it with a dot behind it.
  Result<void> enter(std::string_view name, std::string& at) const {
    std::vector<std::string> names;
    for (const io::StatusPath& field : io::status_paths()) {
      if (!field.path.starts_with(at)) continue;
      const std::string rest = field.path.substr(at.size());
      names.push_back(rest.substr(0, rest.find_first_of(".[")));
      if (names.back() != name && names.back() != "*") continue;
      at += rest.substr(0, rest.find('.')) + ".";
      return {};
    }
    const auto meant = io::nearest_name(name, names);
    return refuse(fmt::format("the status has no {}{}; {}", at, name,
                              meant ? fmt::format("did you mean {}?", *meant)
                                    : "dtctl status --json shows it, and dtctl(1) explains it"));
  }

  static bool filters(std::string_view text, std::vector<Filter>& into) {
    while (!text.empty()) {
      const std::string_view one = host_names::take_until(text, ',');
      const std::size_t equal = one.find('=');
      if (equal == one.npos || equal == 0) return false;
      const bool is_equal = one[equal - 1] != '!';
      const std::string_view field = trimmed(one.substr(0, is_equal ? equal : equal - 1));
      if (field.empty()) return false;
      into.push_back({std::string(field), is_equal, std::string(trimmed(one.substr(equal + 1)))});
    }
    return !into.empty();
  }

  /// OP VALUE, all that is left.
  Result<void> comparison() {
    static constexpr std::array<std::pair<std::string_view, Operator>, 8> kOperators{
        {{">=", Operator::kAtLeast},
         {"<=", Operator::kAtMost},
         {"!=", Operator::kUnequal},
         {"==", Operator::kEqual},
         {"=", Operator::kEqual},
         {"<", Operator::kLess},
         {">", Operator::kMore},
         {"~", Operator::kMatches}}};
    const auto found = std::ranges::find_if(
        kOperators, [this](const auto& o) { return rest_.starts_with(o.first); });
    if (found == kOperators.end())
      return refuse("one of = != < <= > >= ~ and a value were expected");
    out_.operator_ = found->second;
    out_.value_ = trimmed(rest_.substr(found->first.size()));
    rest_ = {};
    if (out_.operator_ == Operator::kMatches) return regular_expression(out_.value_);
    const bool is_ordered =
        out_.operator_ != Operator::kEqual && out_.operator_ != Operator::kUnequal;
    if (is_ordered && !parse_number<double>(out_.value_)) return refuse("a number was expected");
    return {};
  }

  Result<void> regular_expression(std::string_view text) {
    try {
      out_.pattern_.emplace(std::string(text), std::regex::extended | std::regex::optimize);
    } catch (const std::regex_error& e) {
      return refuse(fmt::format("\"{}\" is no extended regular expression: {}", text, e.what()));
    }
    return {};
  }

  std::string_view rest_;
  Condition out_;
};

Result<Condition> Condition::parse(std::string_view text) { return Reader(text).read(); }

/// The values that the step selects: at most one, or one for each item of a list.
std::vector<json> Condition::select(const json& from, const Step& step) {
  std::vector<json> out;
  const auto found = from.find(step.field);
  if (found == from.end()) return out;
  if (!found->is_array() || step.filters.empty()) return {*found};
  json passed = json::array();
  for (const json& item : *found) {
    const bool passes = std::ranges::all_of(step.filters, [&item](const Filter& f) {
      const auto field = item.find(f.field);
      return field != item.end() && (text_of(*field) == f.value) == f.is_equal;
    });
    if (passes) passed.push_back(item);
  }
  return {std::move(passed)};
}

void Condition::see_status(const json& status) {
  if (subject_ != Subject::kStatus) return;
  now_.reset();
  if (!status.is_object()) return;
  json at = status;
  for (const Step& step : path_) {
    if (at.is_array() && step.field == "length") {
      at = at.size();
      continue;
    }
    json next;
    if (at.is_array()) {
      next = json::array();
      for (const json& item : at)
        for (json& value : select(item, step)) next.push_back(std::move(value));
      if (next.empty()) next = nullptr;
    } else if (auto values = select(at, step); !values.empty()) {
      next = std::move(values.front());
    }
    at = std::move(next);
  }
  now_ = text_of(at);
}

void Condition::see_event(const std::string& line) {
  if (subject_ != Subject::kEvents) return;
  const json event = json::parse(line, nullptr, false);
  if (!event.is_object() || event.value("event", "") != event_) return;
  if (pattern_ && !std::regex_search(line, *pattern_)) return;
  ++events_;
}

void Condition::see_end(int exit_code) {
  now_.reset();
  if (subject_ == Subject::kEnd) now_ = fmt::format("{}", exit_code);
}

bool Condition::holds() const {
  if (subject_ == Subject::kEvents) return compare(fmt::format("{}", events_));
  return now_ && compare(*now_);
}

bool Condition::compare(const std::string& value) const {
  if (operator_ == Operator::kMatches) return std::regex_search(value, *pattern_);
  const auto left = parse_number<double>(value);
  const auto right = parse_number<double>(value_);
  if (operator_ == Operator::kEqual || operator_ == Operator::kUnequal) {
    const bool is_equal = left && right ? *left == *right : value == value_;
    return is_equal == (operator_ == Operator::kEqual);
  }
  if (!left || !right) return false;
  const auto order = *left <=> *right;
  return operator_ == Operator::kLess     ? order < 0
         : operator_ == Operator::kAtMost ? order <= 0
         : operator_ == Operator::kMore   ? order > 0
                                          : order >= 0;
}

std::string Condition::shown() const {
  if (subject_ == Subject::kEvents) return fmt::format("{} ({} so far)", text_, events_);
  if (subject_ == Subject::kEnd)
    return fmt::format("{} ({})", text_, now_ ? "exit code " + *now_ : "it has not ended");
  if (!now_) return text_ + " (not known: no supervisor answers)";
  return fmt::format("{} (now {})", text_, now_->empty() ? "nothing" : *now_);
}

}  // namespace dt::supervisor
