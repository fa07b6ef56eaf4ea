#include "supervisor/control/control_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/job/control_protocol.h"
#include "io/line_prefixer.h"

namespace dt::supervisor {
namespace {

constexpr std::size_t kLongestWhy = 200;  ///< Bytes of a stop's reason that are kept.
constexpr std::string_view kOps[] = {"status", "changes", "events", "console", "fleet",  "stop",
                                     "add",    "remove",  "leave",  "grow",    "shrink", "replace"};

}  // namespace

std::string error_reply(std::string_view why) {
  return nlohmann::json{{"ok", false}, {"error", why}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<ControlAsk> control_ask_from_json(std::string_view text) {
  using nlohmann::json;
  // A deep value would be copied and freed by as deep a recursion: only the object's own are kept.
  const auto shallow = [](int depth, json::parse_event_t, json&) { return depth <= 1; };
  const json all = json::parse(text, shallow, false);
  const auto field = [&all](const char* name) {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : &*found;
  };
  const json* op = all.is_object() ? field("op") : nullptr;
  if (op == nullptr || !op->is_string())
    return fail(ErrorKind::kInvalid, "a request is a JSON object with a text \"op\"");
  const auto flag = [&](const char* name) {
    const json* value = field(name);
    return value != nullptr && *value == true;
  };
  const auto number = [&](const char* name, std::uint64_t otherwise) {
    const json* value = field(name);
    return value != nullptr && value->is_number_unsigned() ? value->get<std::uint64_t>()
                                                           : otherwise;
  };
  ControlAsk ask;
  const auto& name = op->get_ref<const std::string&>();
  const auto known = std::ranges::find(kOps, name);
  if (known == std::end(kOps)) return fail(ErrorKind::kInvalid, "unknown request \"{}\"", name);
  ask.op = static_cast<Op>(known - std::begin(kOps));
  ask.force = flag("force");
  ask.owner = flag("owner");
  ask.cancel = flag("cancel");
  if (const json* deadline = field("deadline_s"); deadline != nullptr && deadline->is_number())
    ask.deadline_s = deadline->get<double>();
  if (const json* why = field("why"); why != nullptr && why->is_string() && !why->empty())
    ask.why = io::printable(why->get_ref<const std::string&>().substr(0, kLongestWhy));
  ask.from = number("from", ask.from);
  ask.slots = number("slots", ask.slots);
  ask.unless_there = flag("unless_there");
  ask.asked = number("asked", ask.asked);
  if (const json* report = field("report"); report != nullptr && report->is_string())
    ask.report = report->get<std::string>();
  for (const auto& [key, to] : {std::pair("host", &ask.host), std::pair("to", &ask.to)})
    if (const json* host = field(key); host != nullptr && host->is_string())
      *to = host->get<std::string>();
  const std::uint64_t control = number("control", io::kControlVersion);
  if (ask.op >= Op::kStop && control != io::kControlVersion)
    return fail(ErrorKind::kInvalid,
                "this program uses version {} of the control protocol, the job's supervisor "
                "version {}: nothing is changed; use the dtctl that belongs to the job's dtlaunch",
                control, io::kControlVersion);
  return ask;
}

}  // namespace dt::supervisor
