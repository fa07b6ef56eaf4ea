#include "supervisor/dtctl/status_text.h"

#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/quantity.h"
#include "core/base/time.h"
#include "supervisor/dtctl/file_tail.h"
#include "supervisor/dtctl/folded_table.h"
#include "supervisor/dtctl/status_items.h"

namespace dt::supervisor {
namespace {

using nlohmann::json;

const json& part(const json& object, const char* key) {
  static const json kNothing;
  const auto found = object.find(key);
  return found == object.end() ? kNothing : *found;
}

/// A value as text; "-" when it is missing, null or empty.
std::string shown(const json& object, const char* key) {
  const json& value = part(object, key);
  const std::string text = value.is_null()           ? ""
                           : value.is_number_float() ? fmt::format("{:.0f}", value.get<double>())
                                                     : text_of(value);
  return text.empty() ? "-" : text;
}

/// A number as `format` has it; "-" when there is none.
std::string shown(const json& object, const char* key, auto format) {
  const json& value = part(object, key);
  return value.is_number() ? format(value.get<double>()) : "-";
}

/// A number as `format` has it, for a column of amounts.
Cell amount(const json& object, const char* key, auto format) {
  return {shown(object, key, format), number(object, key)};
}
Cell amount(const json& object, const char* key) {
  return {shown(object, key), number(object, key)};
}

/// How much is said.
struct Detail {
  bool is_whole;  ///< Nothing is folded.
  /// Whether the list `key` is too long to be shown as it is.
  [[nodiscard]] bool folds(const json& status, const char* key) const {
    return !is_whole && items(status, key).size() > FoldedTable::kWholeRows;
  }
};

/// `text` with HOST where the host's own name stands, so that hosts of one trouble say the same.
std::string without_name(std::string text, std::string host) {
  host.erase(0, host.find('@') + 1);
  const auto is_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  if (const auto port = host.rfind(':'); port != host.npos && host.find(':') == port)
    host.erase(port);
  for (std::size_t at = 0; !host.empty() && (at = text.find(host, at)) != text.npos;) {
    const std::size_t end = at + host.size();
    const bool is_whole =
        (at == 0 || !is_name(text[at - 1])) && (end == text.size() || !is_name(text[end]));
    if (is_whole) text.replace(at, host.size(), "HOST");
    at += is_whole ? std::string_view("HOST").size() : 1;
  }
  return text;
}

/// A reason in the row of a host.
Cell reason(std::string why, const std::string& host) {
  std::string of_many = without_name(why, host);
  return {std::move(why), 0, std::move(of_many)};
}

/// The reason of a worker's state. Short stalls are usual and left out. Workers that only wait are
/// folded, whatever each does meanwhile.
Cell why_of(const json& worker) {
  constexpr double kNews = 3;
  if (const json& waits = part(worker, "waits"); waits.is_object())
    return {
        fmt::format("waits {} ({})", shown(waits, "text"), duration_text(number(waits, "for_s"))),
        0, "waits for others that wait"};
  const std::string slowest = shown(worker, "slowest");
  std::string stall = stall_text(worker, kNews);
  if (stall.empty())
    return reason(slowest == "-" ? shown(worker, "why") : slowest, shown(worker, "host"));
  const bool is_waited_for = shown(part(worker, "stalls"), "waited_for") == "true";
  return {std::move(stall), 0, is_waited_for ? "" : "no step"};
}

/// A member that the next epoch begins without is leaving already, for people.
std::string state_of(const json& worker) {
  return shown(worker, "leaves_next") == "true" ? "LEAVING" : shown(worker, "state");
}

std::string rate_text(double steps_per_s) { return fmt::format("{:.1f}", steps_per_s); }

std::string milliseconds_text(double seconds) { return fmt::format("{:.3g} ms", seconds * 1e3); }
std::string percent_text(double share) { return fmt::format("{:.0f} %", share * 100); }

std::string ago_text(double seconds) { return duration_text(seconds) + " ago"; }

/// "120", "120 of 938".
std::string step_of(const json& progress) {
  const std::string steps = shown(progress, "steps_in_epoch");
  return shown(progress, "step") + (steps == "-" ? "" : " of " + steps);
}

/// What rank 0's program reports.
std::string values(const json& status) {
  for (const json& w : items(status, "workers")) {
    const json& values = part(w, "values");
    if (shown(w, "rank") != "0" || !values.is_object() || values.empty()) continue;
    std::string out;
    for (const auto& [name, value] : values.items())
      if (value.is_number())
        out += fmt::format("{}{} {:.4g}", out.empty() ? "" : ", ", name, value.get<double>());
    return fmt::format("worker {} reports {}\n", shown(w, "id"), out);
  }
  return "";
}

std::string workers(const json& status, Detail detail) {
  FoldedTable table({{"WORKER", Column::kIds},
                     {"RANK", Column::kIds},
                     {"HOST", Column::kHosts},
                     {"STATE", Column::kSame},
                     {"EPOCH", Column::kSame},
                     {"STEP", Column::kAmount},
                     {"STEPS/S", Column::kAmount},
                     {"SAMPLES/S", Column::kAmount},
                     {"OWN/STEP", Column::kAmount},
                     {"WAITS", Column::kAmount},
                     {"RSS", Column::kAmount},
                     {"OUTPUT", Column::kAmount},
                     {"PID", Column::kOwn},
                     {"WHY", Column::kSame}},
                    detail.is_whole);
  for (const json& w : items(status, "workers")) {
    const json& progress = part(w, "progress");
    table.add({{shown(w, "id")},
               {shown(w, "rank")},
               {shown(w, "host")},
               {state_of(w)},
               {shown(progress, "epoch")},
               {step_of(progress), number(progress, "step")},
               amount(w, "steps_per_s", rate_text),
               amount(progress, "samples_per_s", rate_text),
               amount(w, "own_step_s", milliseconds_text),
               amount(w, "waits_share", percent_text),
               amount(w, "resident_bytes", bytes_text),
               amount(w, "output_age_s", ago_text),
               {shown(w, "pid")},
               why_of(w)});
  }
  return table.text() + values(status);
}

/// "cuda:0, NVIDIA H200", "cpu".
std::string device_of(const json& server) {
  const std::string note = shown(server, "device_note");
  return shown(server, "device") + (note == "-" ? "" : ", " + note);
}

std::string servers(const json& status, Detail detail) {
  FoldedTable table({{"SERVER", Column::kIds},
                     {"HOST", Column::kHosts},
                     {"STATE", Column::kSame},
                     {"ADDRESS", Column::kOwn},
                     {"DEVICE", Column::kSame}},
                    detail.is_whole);
  for (const json& s : items(status, "servers")) {
    const bool listens = shown(s, "address") != "-";
    table.add({{shown(s, "id")},
               {shown(s, "host")},
               {shown(s, "state")},
               {listens ? shown(s, "address") + " port " + shown(s, "port") : "-"},
               {device_of(s)}});
  }
  return table.empty() ? "" : "\n" + table.text();
}

/// Hosts with trouble: cooling, given up, or with a reason.
std::string troubled_hosts(const json& status, Detail detail) {
  FoldedTable table({{"HOST", Column::kHosts},
                     {"WANTED", Column::kAmount},
                     {"LINK", Column::kSame},
                     {"ATTEMPTS", Column::kAmount},
                     {"RESTARTS", Column::kAmount},
                     {"NEXT TRY", Column::kAmount},
                     {"WHY", Column::kSame}},
                    detail.is_whole);
  for (const json& h : items(status, "hosts")) {
    const std::string cooling = shown(h, "cooling_until_s");
    const bool given_up = shown(h, "given_up") == "true";
    const bool suspect = shown(h, "life") == "suspect" || shown(h, "life") == "lost";
    const std::string why = shown(h, "why");
    if (cooling == "-" && !given_up && !suspect && why == "-") continue;
    const std::string next = given_up ? "given up" : cooling == "-" ? "-" : "in " + cooling + " s";
    table.add({{shown(h, "host")},
               amount(h, "wanted"),
               {shown(h, suspect ? "life" : "link")},
               amount(h, "attempts"),
               amount(h, "restarts"),
               {next, number(h, "cooling_until_s"), given_up ? next : ""},
               reason(why, shown(h, "host"))});
  }
  return table.empty() ? "" : "\n" + table.text();
}

/// "12.3/79.6 GiB".
std::string memory_of(const json& gpu) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const json& used = part(gpu, "memory_used");
  const json& total = part(gpu, "memory_total");
  if (!used.is_number() || !total.is_number()) return "-";
  return fmt::format("{:.1f}/{:.1f} GiB", used.get<double>() / kGiB, total.get<double>() / kGiB);
}

std::string with_unit(const json& object, const char* key, const char* unit) {
  const std::string number = shown(object, key);
  return number == "-" ? number : number + " " + unit;
}

std::string joined(const json& object, const char* key, const char* between) {
  std::string out;
  for (const json& item : items(object, key)) out += (out.empty() ? "" : between) + text_of(item);
  return out.empty() ? "-" : out;
}

std::string gpus(const json& status, Detail detail) {
  FoldedTable table({{"GPU", Column::kIds},
                     {"HOST", Column::kHosts},
                     {"NAME", Column::kSame},
                     {"WORKERS", Column::kOwn},
                     {"BUSY", Column::kAmount},
                     {"MEMORY", Column::kAmount},
                     {"TEMP", Column::kAmount},
                     {"POWER", Column::kAmount},
                     {"TROUBLE", Column::kSame}},
                    detail.is_whole);
  for (const json& g : items(status, "gpus"))
    table.add({{shown(g, "index")},
               {shown(g, "host")},
               {shown(g, "name")},
               {joined(g, "workers", ",")},
               {with_unit(g, "busy_percent", "%"), number(g, "busy_percent")},
               {memory_of(g), number(g, "memory_used")},
               {with_unit(g, "temperature_c", "C"), number(g, "temperature_c")},
               {with_unit(g, "power_w", "W"), number(g, "power_w")},
               {joined(g, "trouble", "; ")}});
  return table.empty() ? "" : "\n" + table.text();
}

/// That the shared volume stalls, or is slower than the output that comes.
std::string volume(const json& status) {
  const json& volume = part(status, "volume");
  std::string out;
  if (const double doubtful = number(volume, "lock_doubtful_s"); doubtful > 0)
    out = fmt::format("nothing is started: .dtlaunch/lock could not be read for {}\n",
                      duration_text(doubtful));
  if (const double stalled = number(volume, "stalled_s"); stalled >= 1)
    return out + fmt::format("the shared volume has not answered for {}\n", duration_text(stalled));
  constexpr double kSlow = 5;
  const double age = number(volume, "queue_age_s");
  if (age < kSlow) return out;
  return out + fmt::format("the shared volume is slow: output waits {} before it is written\n",
                           duration_text(age));
}

/// A list of hosts: one by one, or a long one as ranges: "n[1-500], n[501-900] x2".
std::string host_list(const json& file, const char* key, Detail detail) {
  const auto hosts = items(file, key);
  if (!detail.folds(file, key)) return joined(file, key, " ");
  std::map<std::string, std::size_t> lines_of;
  for (const json& host : hosts) ++lines_of[text_of(host)];
  std::map<std::size_t, std::vector<std::string>> by_lines;
  for (const auto& [host, lines] : lines_of) by_lines[lines].push_back(host);
  std::string out;
  for (const auto& [lines, names] : by_lines)
    out += fmt::format("{}{}{}", out.empty() ? "" : ", ", fold_host_names(names),
                       lines == 1 ? "" : fmt::format(" x{}", lines));
  return out;
}

std::string host_file(const json& status, Detail detail) {
  if (shown(status, "elastic") != "true") return "\nnot elastic: nothing joins or leaves\n";
  const json& file = part(status, "file");
  const auto list = [&](const char* key) { return host_list(file, key, detail); };
  std::string out = fmt::format("\n{}, last accepted:{}\n", shown(file, "path"),
                                items(file, "accepted").empty() ? "" : " " + list("accepted"));
  if (detail.folds(file, "kept"))
    out += fmt::format("{} are hosts of the initial launch: their workers stay\n", list("kept"));
  else
    for (const json& host : items(file, "kept"))
      out += fmt::format("{} is a host of the initial launch: its workers stay\n", text_of(host));
  if (!items(file, "beyond_limit").empty())
    out += fmt::format("beyond --max-workers {}, started when others go: {}\n",
                       shown(status, "max_workers"), list("beyond_limit"));
  const json& refused = part(file, "refused");
  if (refused.is_object())
    out += fmt::format("the present content is refused: {}\n", shown(refused, "why"));
  if (part(status, "log_lines").is_number())
    out += fmt::format("host_worker_log has {}\n",
                       count_text(static_cast<std::uint64_t>(number(status, "log_lines")), "line"));
  if (const std::string moved = shown(status, "log_foreign"); moved != "-")
    out += fmt::format("others have changed it: what they left is {}\n", moved);
  return out;
}

std::string checkpoint(const json& status) {
  const json& said = part(status, "checkpoint");
  const bool is_by_time = number(said, "interval_s") > 0;
  if (!said.is_object() || restarts_group(status) || (shown(said, "every") == "0" && !is_by_time))
    return "";
  if (shown(said, "none_because") != "-") return shown(said, "none_because") + "\n";
  std::string out = shown(said, "newest") == "-"
                        ? "no checkpoint yet"
                        : fmt::format("newest checkpoint: epoch {}", shown(said, "newest"));
  if (shown(said, "writing") != "-")
    out += fmt::format(", that of epoch {} is being written", shown(said, "writing"));
  if (shown(said, "trouble") != "-") out += fmt::format("; {}", shown(said, "trouble"));
  return out + "\n";
}

/// What the listener, or several of them, kept out.
std::string kept_out_by(const std::string& by, const json& kept) {
  return fmt::format(
      "{} kept out: {} connections of strangers, {} that broke the rules, {} requests of workers "
      "that are no members\n",
      by, shown(kept, "refused"), shown(kept, "dropped"), shown(kept, "fenced"));
}

/// A line for each listener that kept connections out; the sum of many.
std::string kept_out(const json& status, Detail detail) {
  std::string out;
  json sum{{"refused", 0}, {"dropped", 0}, {"fenced", 0}};
  const auto all = items(status, "kept_out");
  for (const json& k : all) {
    out += kept_out_by(shown(k, "by"), k);
    for (auto& [key, value] : sum.items()) value = value.get<double>() + number(k, key.c_str());
  }
  return detail.folds(status, "kept_out")
             ? kept_out_by(fmt::format("{} servers and agents", all.size()), sum)
             : out;
}

/// The journal's disk has no room, or little.
std::string journal(const json& status) {
  const json& said = part(status, "journal");
  const std::string trouble = shown(said, "trouble");
  const double waits = number(said, "waits_s");
  if (trouble == "-") return "";
  if (waits <= 0) return trouble + "\n";
  return fmt::format("{}: nothing is decided for {}; training waits at the next boundary\n",
                     trouble, duration_text(waits));
}

/// The nodes that dtctl grow has asked for.
std::string fleet(const json& status) {
  const json& said = part(status, "fleet");
  if (!said.is_object()) return "";
  const std::string trouble = shown(said, "trouble");
  return fmt::format("nodes of Slurm: {}{}\n", shown(said, "text"),
                     trouble == "-" ? "" : "; " + trouble);
}

/// The epoch, and what the workers do in it.
std::string at_work(const json& status) {
  struct Doing {
    std::string_view verb;
    std::uint64_t count = 0;
  };
  std::array all{Doing{restarts_group(status) ? "run" : "train"}, Doing{"start"}, Doing{"leave"},
                 Doing{"end"}};
  for (const json& w : items(status, "workers")) {
    const std::string state = state_of(w);
    const bool starts =
        state == "SEEN" || state == "PREPARING" || state == "STARTING" || state == "WARM";
    ++all[state == "MEMBER" ? 0 : starts ? 1 : state == "LEAVING" ? 2 : 3].count;
  }
  const char* key = restarts_group(status) ? "group_restarts" : "epoch";
  std::string out = shown(status, key) == "-"
                        ? ""
                        : fmt::format("{} {}: ", restarts_group(status) ? "restart" : "epoch",
                                      shown(status, key));
  for (const Doing& one : all)
    if (one.count > 0 || &one == all.data())
      out += fmt::format("{}{} {}{}", &one == all.data() ? "" : ", ", one.count, one.verb,
                         one.count == 1 ? "s" : "");
  return out + "\n";
}

/// The lost time by cause; nothing below one per cent of all.
std::string lost_time(const json& status) {
  constexpr double kWorthTelling = 0.01;
  const json& time = part(status, "goodput");
  if (!time.is_object() || number(time, "share") > 1 - kWorthTelling) return "";
  std::string out;
  for (const auto& [cause, lost] : part(time, "lost_s").items())
    if (lost.is_number() && lost.get<double>() >= 0.05)
      out += fmt::format("{} {} {:.1f} s", out.empty() ? "" : ",", cause, lost.get<double>());
  return fmt::format("lost of {:.0f} worker-seconds:{}\n", number(time, "worker_s"), out);
}

/// Who goes away, when, why, and what becomes of the workers.
std::string leaving_text(const std::string& who, const json& leaving) {
  if (!part(leaving, "in_s").is_number())
    return fmt::format("{}: {} ({})\n", who, shown(leaving, "text"), shown(leaving, "why"));
  return fmt::format("{}: in {} ({}): {}\n", who, shown(leaving, "in_s", duration_text),
                     shown(leaving, "why"), shown(leaving, "text"));
}

std::string head(const json& status, Detail detail) {
  std::string out = fmt::format("job {}: {}, up {}\n", shown(status, "job"), shown(status, "state"),
                                shown(status, "uptime_s", duration_text));
  if (number(status, "term") > 1 && part(status, "supervisor_s").is_number())
    out += fmt::format("its supervisor is number {}, since {}\n", shown(status, "term"),
                       shown(status, "supervisor_s", duration_text));
  if (const json& pulse = part(status, "pulse"); pulse.is_object())
    out += shown(pulse, "text") + "\n";
  if (part(status, "workers").is_array()) out += at_work(status);
  if (const json& back = part(status, "rolling_back"); back.is_object())
    out += fmt::format("going back to the checkpoint of epoch {}: {}\n", shown(back, "to_epoch"),
                       shown(back, "why"));
  if (shown(status, "not_open") != "-") out += shown(status, "not_open") + "\n";
  if (shown(status, "waiting") != "-")
    out += fmt::format("{}{}\n", restarts_group(status) ? "" : "the next boundary waits: ",
                       shown(status, "waiting"));
  if (const json& leaving = part(status, "leaving"); leaving.is_object())
    out += leaving_text("every host goes away", leaving);
  for (const json& host : items(status, "hosts"))
    if (const json& leaving = part(host, "leaving"); leaving.is_object())
      out += leaving_text("LEAVING " + shown(host, "host"), leaving);
  if (const json& still = part(status, "standstill"); still.is_object())
    out += fmt::format("nothing has moved for {}: {}{}\n", shown(still, "for_s", duration_text),
                       shown(still, "text"),
                       part(still, "ends_in_s").is_number()
                           ? fmt::format("; the job ends in {} (--hang-timeout)",
                                         shown(still, "ends_in_s", duration_text))
                           : "");
  out += lost_time(status);
  if (const json& balance = part(status, "balance"); balance.is_object())
    out += fmt::format("balance {}\n", shown(balance, "text"));
  out += fleet(status);
  out += journal(status);
  out += volume(status);
  return out + checkpoint(status) + kept_out(status, detail) + "\n";
}

}  // namespace

Result<std::string> status_text(std::string_view text, bool is_whole) {
  const json status = json::parse(text, nullptr, false);
  if (!status.is_object()) return fail(ErrorKind::kProtocol, "the supervisor's status is no JSON");
  const Detail detail{is_whole};
  // Reasons are in the words of hosts, drivers and programs.
  return screen_text(head(status, detail) + workers(status, detail) + servers(status, detail) +
                     gpus(status, detail) + troubled_hosts(status, detail) +
                     host_file(status, detail));
}

}  // namespace dt::supervisor
