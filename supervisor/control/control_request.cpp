#include "supervisor/control/control_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/job/control_protocol.h"
#include "io/line_prefixer.h"

namespace dt::supervisor {
namespace {

using nlohmann::json;

constexpr std::size_t kLongestWhy = 200;  ///< Bytes of a stop's reason that are kept.
constexpr std::string_view kOps[] = {"status", "changes", "events", "console", "fleet",  "stop",
                                     "add",    "remove",  "leave",  "grow",    "shrink", "replace"};

/// Null: it is missing, or of another type.
template <class T>
const T* field(const json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() ? nullptr : at->get_ptr<const T*>();
}

}  // namespace

std::string error_reply(std::string_view why) {
  return json{{"ok", false}, {"error", why}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<ControlAsk> control_ask_from_json(std::string_view text) {
  // A deep value would be copied and freed by as deep a recursion: only the object's own are kept.
  const auto shallow = [](int depth, json::parse_event_t, json&) { return depth <= 1; };
  const json all = json::parse(text, shallow, false);
  const auto* name = field<std::string>(all, "op");
  if (name == nullptr)
    return fail(ErrorKind::kInvalid, "a request is a JSON object with a text \"op\"");
  const auto known = std::ranges::find(kOps, *name);
  if (known == std::end(kOps)) return fail(ErrorKind::kInvalid, "unknown request \"{}\"", *name);
  ControlAsk ask;
  ask.op = static_cast<Op>(known - std::begin(kOps));
  const auto take = [&all]<class T>(const char* key, T& to) {
    if (const auto* value = field<T>(all, key)) to = *value;
  };
  take("force", ask.force);
  take("owner", ask.owner);
  take("cancel", ask.cancel);
  take("unless_there", ask.unless_there);
  take("machine_is_gone", ask.machine_is_gone);
  take("from", ask.from);
  take("slots", ask.slots);
  take("asked", ask.asked);
  if (const auto at = all.find("deadline_s"); at != all.end() && at->is_number())
    ask.deadline_s = at->get<double>();
  if (const auto* why = field<std::string>(all, "why"))
    ask.why = io::printable(why->substr(0, kLongestWhy));
  for (const auto& [key, to] :
       {std::pair("host", &ask.host), std::pair("to", &ask.to), std::pair("report", &ask.report)})
    if (const auto* value = field<std::string>(all, key)) *to = *value;
  std::uint64_t control = io::kControlVersion;
  take("control", control);
  if (ask.op >= Op::kStop && control != io::kControlVersion)
    return fail(ErrorKind::kInvalid,
                "this program uses version {} of the control protocol, the job's supervisor "
                "version {}: nothing is changed; use the dtctl that belongs to the job's dtlaunch",
                control, io::kControlVersion);
  return ask;
}

}  // namespace dt::supervisor
