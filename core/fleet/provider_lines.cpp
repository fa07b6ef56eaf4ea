#include "core/fleet/provider_lines.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/files/host_names.h"

namespace dt::provider_lines {
namespace {

using nlohmann::json;
using Text = std::string_view;

constexpr std::size_t kMostMachines = 100'000;
constexpr std::size_t kLongestText = 1024;
constexpr double kLongestPause_s = 3600;
constexpr int kDeepest = 4;
/// In the order of Trouble.
constexpr Text kTroubles[] = {"away", "busy", "denied", "wrong"};
constexpr std::pair<Text, MachineState> kStates[] = {{"pending", MachineState::kPending},
                                                     {"ready", MachineState::kReady},
                                                     {"ending", MachineState::kEnding}};

struct Wrong {
  std::string why;
};

std::string line_of(std::uint64_t n, Text what, json more = json::object()) {
  json all{{"n", n}, {"do", what}};
  all.update(more);
  return all.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

/// No line that is right is deeper; a deeper tree would be walked and freed by as deep a recursion.
json object_of(Text text) {
  bool is_deep = false;
  const auto shallow = [&is_deep](int depth, json::parse_event_t, json&) {
    is_deep = is_deep || depth > kDeepest;
    return depth <= kDeepest;
  };
  json all = json::parse(text, shallow, false);
  // The parser takes a NUL for the end.
  if (all.is_discarded() || text.find('\0') != Text::npos) throw Wrong{"it is no JSON"};
  if (!all.is_object() || is_deep) throw Wrong{"it is no JSON object of at most four levels"};
  return all;
}

/// A text as it can be shown; `otherwise`: where it is missing.
std::string text_at(const json& object, const char* key, const char* otherwise = nullptr) {
  const auto at = object.find(key);
  if (at == object.end() && otherwise) return otherwise;
  if (at == object.end() || !at->is_string()) throw Wrong{fmt::format("\"{}\" is no text", key)};
  const auto& text = at->get_ref<const std::string&>();
  if (text.size() > kLongestText)
    throw Wrong{fmt::format("\"{}\" is longer than {} bytes", key, kLongestText)};
  return host_names::shown(text, kLongestText);
}

bool flag_at(const json& object, const char* key, bool otherwise) {
  const auto at = object.find(key);
  if (at == object.end()) return otherwise;
  if (!at->is_boolean()) throw Wrong{fmt::format("\"{}\" is neither true nor false", key)};
  return at->get<bool>();
}

std::optional<std::uint64_t> count_at(const json& object, const char* key, std::uint64_t most) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return std::nullopt;
  if (!at->is_number_unsigned() || at->get<std::uint64_t>() > most)
    throw Wrong{fmt::format("\"{}\" is no whole number up to {}", key, most)};
  return at->get<std::uint64_t>();
}

std::optional<double> seconds_at(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return std::nullopt;
  if (!at->is_number() || !std::isfinite(at->get<double>()) || at->get<double>() < 0)
    throw Wrong{fmt::format("\"{}\" is no number of seconds", key)};
  return at->get<double>();
}

Machine machine_of(const json& entry) {
  if (!entry.is_object()) throw Wrong{"an entry of \"machines\" is no object"};
  Machine machine{.id = text_at(entry, "id"), .host = text_at(entry, "host", "")};
  const std::string state = text_at(entry, "state");
  const auto* known =
      std::ranges::find(kStates, Text(state), &std::pair<Text, MachineState>::first);
  if (known == std::end(kStates))
    throw Wrong{fmt::format("\"state\" is pending, ready or ending, not \"{}\"", state)};
  machine.state = known->second;
  if (machine.id.empty()) throw Wrong{"\"id\" is empty"};
  if (machine.host.empty() && machine.state != MachineState::kPending)
    throw Wrong{fmt::format("{}: \"host\" is missing", machine.id)};
  if (machine.host.size() > host_names::kLongestName ||
      !std::ranges::all_of(machine.host, host_names::is_name_char))
    throw Wrong{fmt::format("{}: \"{}\" is no host", machine.id, machine.host)};
  machine.slots =
      static_cast<std::uint32_t>(count_at(entry, "slots", host_names::kMostSlots).value_or(1));
  if (machine.slots == 0) throw Wrong{fmt::format("{}: \"slots\" is 0", machine.id)};
  const std::string mark = text_at(entry, "mark", "");
  const auto read = mark_of(mark);
  if (!read) throw Wrong{fmt::format("{}: \"{}\" is no mark", machine.id, mark)};
  machine.mark = *read;
  machine.is_asked = flag_at(entry, "asked", false) || !flag_at(entry, "wanted", true);
  machine.deadline = seconds_at(entry, "deadline");
  machine.since = seconds_at(entry, "since");
  machine.is_held_back = flag_at(entry, "held_back", false);
  machine.order = count_at(entry, "order", UINT64_MAX).value_or(0);
  machine.why = text_at(entry, "why", "");
  return machine;
}

/// What `read` throws as an error.
template <class Read>
auto checked(Text text, Read read) -> Result<decltype(read(json()))> {
  try {
    return read(object_of(text));
  } catch (const Wrong& wrong) {
    return fail(ErrorKind::kProtocol, "{}", wrong.why);
  }
}

}  // namespace

std::string hello(std::uint64_t n, Text job) {
  return line_of(n, "hello", {{"version", kVersion}, {"job", job}});
}
std::string list(std::uint64_t n) { return line_of(n, "list"); }
std::string mark(std::uint64_t n, const Machine& machine, Mark mark) {
  return line_of(n, "mark",
                 {{"id", machine.id}, {"mark", mark_text(mark)}, {"asked", machine.is_asked}});
}
std::string let_go(std::uint64_t n, Text id, Text why) {
  return line_of(n, "let_go", {{"id", id}, {"why", why}});
}
std::string grow(std::uint64_t n, std::uint64_t from, std::uint64_t to) {
  return line_of(n, "grow", {{"from", from}, {"to", to}});
}
std::string confirm(std::uint64_t n, Text id) { return line_of(n, "confirm", {{"id", id}}); }

Result<Line> parse_line(Text text) {
  return checked(text, [](const json& all) {
    Line line;
    line.is_changed = text_at(all, "event", "") == "changed";
    if (line.is_changed) return line;
    const auto n = count_at(all, "n", UINT64_MAX);
    if (!n) throw Wrong{"\"n\" is missing"};
    line.n = *n;
    if (flag_at(all, "ok", false)) return line;
    Refusal refusal{.text = text_at(all, "error")};
    const std::string kind = text_at(all, "kind");
    const auto* known = std::ranges::find(kTroubles, Text(kind));
    if (known == std::end(kTroubles))
      throw Wrong{fmt::format("\"kind\" is {}, not \"{}\"", fmt::join(kTroubles, ", "), kind)};
    refusal.kind = static_cast<Trouble>(known - kTroubles);
    line.refusal = std::move(refusal);
    return line;
  });
}

Result<Hello> parse_hello(Text text) {
  return checked(text, [](const json& all) {
    const auto version = count_at(all, "version", UINT32_MAX);
    if (version != kVersion)
      throw Wrong{fmt::format("it has version {} of the provider's protocol, dtfleet version {}",
                              version.value_or(0), kVersion)};
    Hello hello{.name = text_at(all, "name"), .has_marks = flag_at(all, "marks", false)};
    const auto can = all.find("can");
    const auto does = [&](const char* word) {
      return can != all.end() && can->is_array() &&
             std::ranges::find(*can, json(word)) != can->end();
    };
    hello.can_grow = does("grow");
    hello.can_let_go = does("let_go");
    hello.can_confirm = does("confirm");
    hello.gives_back_at_end = flag_at(all, "gives_back_at_end", false);
    if (const auto every = seconds_at(all, "every_s")) {
      if (*every < 1 || *every > kLongestPause_s)
        throw Wrong{fmt::format("\"every_s\" is from 1 to {}", kLongestPause_s)};
      hello.every = from_seconds(*every);
    }
    return hello;
  });
}

Result<Listing> parse_listing(Text text) {
  return checked(text, [](const json& all) {
    const auto machines = all.find("machines");
    if (machines == all.end() || !machines->is_array()) throw Wrong{"\"machines\" is no list"};
    if (machines->size() > kMostMachines)
      throw Wrong{
          fmt::format("\"machines\" has {}, more than {}", machines->size(), kMostMachines)};
    Listing listing{.wished = count_at(all, "wished", kMostMachines),
                    .said = text_at(all, "said", "")};
    std::set<Text> ids;
    listing.machines.reserve(machines->size());
    for (const json& entry : *machines) {
      listing.machines.push_back(machine_of(entry));
      if (!ids.insert(listing.machines.back().id).second)
        throw Wrong{fmt::format("{} is there twice", listing.machines.back().id)};
    }
    std::ranges::stable_sort(listing.machines, {}, &Machine::order);
    return listing;
  });
}

std::string sentence_of(Text text) {
  const auto said = checked(text, [](const json& all) {
    return text_at(all, all.contains("later") ? "later" : "said", "");
  });
  return said.value_or("");
}

}  // namespace dt::provider_lines
