#include "supervisor/dtctl/status_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "supervisor/dtctl/file_tail.h"
#include "supervisor/dtctl/status_items.h"

namespace dt::supervisor {
namespace {

using nlohmann::json;
using Row = std::vector<std::string>;

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

/// Columns as wide as their widest cell, the last one as it is.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      out += i + 1 == row.size() ? row[i] : fmt::format("{:<{}}  ", row[i], widths[i]);
    while (out.ends_with(' ')) out.pop_back();
    out += "\n";
  }
  return out;
}

/// The reason of a worker's state. Short stalls are usual and left out.
std::string why_of(const json& worker) {
  constexpr double kNews = 3;
  const json& stalls = part(worker, "stalls");
  const double time = number(stalls, "for_s");
  if (time < kNews) return shown(worker, "why");
  const std::string process = shown(stalls, "process");
  return fmt::format("does nothing for {}{}{}", duration_text(time),
                     shown(stalls, "waited_for") == "true" ? " while others wait for it" : "",
                     process == "-" ? "" : "; " + process);
}

/// A member that the next epoch begins without is leaving already, for people.
std::string state_of(const json& worker) {
  return shown(worker, "leaves_next") == "true" ? "LEAVING" : shown(worker, "state");
}

std::string rate_text(double steps_per_s) { return fmt::format("{:.1f}", steps_per_s); }

/// "812 MB", "3.4 GB".
std::string memory_text(double bytes) {
  const double mb = bytes / 1e6;
  return mb < 1000 ? fmt::format("{:.0f} MB", mb) : fmt::format("{:.1f} GB", mb / 1000);
}

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

std::string workers(const json& status) {
  std::vector<Row> rows = {{"WORKER", "RANK", "HOST", "STATE", "EPOCH", "STEP", "STEPS/S",
                            "SAMPLES/S", "RSS", "OUTPUT", "PID", "WHY"}};
  for (const json& w : items(status, "workers")) {
    const json& progress = part(w, "progress");
    rows.push_back({shown(w, "id"), shown(w, "rank"), shown(w, "host"), state_of(w),
                    shown(progress, "epoch"), step_of(progress), shown(w, "steps_per_s", rate_text),
                    shown(progress, "samples_per_s", rate_text),
                    shown(w, "resident_bytes", memory_text), shown(w, "output_age_s", ago_text),
                    shown(w, "pid"), why_of(w)});
  }
  return table(rows) + values(status);
}

/// "cuda:0, NVIDIA H200", "cpu".
std::string device_of(const json& server) {
  const std::string note = shown(server, "device_note");
  return shown(server, "device") + (note == "-" ? "" : ", " + note);
}

std::string servers(const json& status) {
  std::vector<Row> rows = {{"SERVER", "HOST", "STATE", "ADDRESS", "DEVICE"}};
  for (const json& s : items(status, "servers")) {
    const bool listens = shown(s, "address") != "-";
    rows.push_back({shown(s, "id"), shown(s, "host"), shown(s, "state"),
                    listens ? shown(s, "address") + " port " + shown(s, "port") : "-",
                    device_of(s)});
  }
  return rows.size() == 1 ? "" : "\n" + table(rows);
}

/// Hosts with trouble: cooling, given up, or with a reason.
std::string troubled_hosts(const json& status) {
  std::vector<Row> rows = {{"HOST", "WANTED", "LINK", "ATTEMPTS", "RESTARTS", "NEXT TRY", "WHY"}};
  for (const json& h : items(status, "hosts")) {
    const std::string cooling = shown(h, "cooling_until_s");
    const bool given_up = shown(h, "given_up") == "true";
    const bool suspect = shown(h, "life") == "suspect" || shown(h, "life") == "lost";
    if (cooling == "-" && !given_up && !suspect && shown(h, "why") == "-") continue;
    rows.push_back({shown(h, "host"), shown(h, "wanted"), shown(h, suspect ? "life" : "link"),
                    shown(h, "attempts"), shown(h, "restarts"),
                    given_up         ? "given up"
                    : cooling == "-" ? "-"
                                     : "in " + cooling + " s",
                    shown(h, "why")});
  }
  return rows.size() == 1 ? "" : "\n" + table(rows);
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

std::string gpus(const json& status) {
  std::vector<Row> rows = {
      {"GPU", "HOST", "NAME", "WORKERS", "BUSY", "MEMORY", "TEMP", "POWER", "TROUBLE"}};
  for (const json& g : items(status, "gpus"))
    rows.push_back({shown(g, "index"), shown(g, "host"), shown(g, "name"),
                    joined(g, "workers", ","), with_unit(g, "busy_percent", "%"), memory_of(g),
                    with_unit(g, "temperature_c", "C"), with_unit(g, "power_w", "W"),
                    joined(g, "trouble", "; ")});
  return rows.size() == 1 ? "" : "\n" + table(rows);
}

/// That the shared volume stalls, or is slower than the output that comes.
std::string volume(const json& status) {
  const json& volume = part(status, "volume");
  if (const double stalled = number(volume, "stalled_s"); stalled >= 1)
    return fmt::format("the shared volume has not answered for {}\n", duration_text(stalled));
  constexpr double kSlow = 5;
  const double age = number(volume, "queue_age_s");
  if (age < kSlow) return "";
  return fmt::format("the shared volume is slow: output waits {} before it is written\n",
                     duration_text(age));
}

std::string host_file(const json& status) {
  if (shown(status, "elastic") != "true") return "\nnot elastic: nothing joins or leaves\n";
  const json& file = part(status, "file");
  std::string out = fmt::format("\n{}, last accepted:", shown(file, "path"));
  for (const json& host : items(file, "accepted")) out += " " + text_of(host);
  out += "\n";
  for (const json& host : items(file, "kept"))
    out += fmt::format("{} is a host of the initial launch: its workers stay\n", text_of(host));
  std::string beyond;
  for (const json& host : items(file, "beyond_limit")) beyond += " " + text_of(host);
  if (!beyond.empty())
    out += fmt::format("beyond --max-workers {}, started when others go:{}\n",
                       shown(status, "max_workers"), beyond);
  const json& refused = part(file, "refused");
  if (refused.is_object())
    out += fmt::format("the present content is refused: {}\n", shown(refused, "why"));
  return out + fmt::format("host_worker_log has {} lines\n", shown(status, "log_lines"));
}

std::string checkpoint(const json& status) {
  const json& said = part(status, "checkpoint");
  const bool is_by_time = number(said, "interval_s") > 0;
  if (!said.is_object() || (shown(said, "every") == "0" && !is_by_time)) return "";
  if (shown(said, "none_because") != "-") return shown(said, "none_because") + "\n";
  std::string out = shown(said, "newest") == "-"
                        ? "no checkpoint yet"
                        : fmt::format("newest checkpoint: epoch {}", shown(said, "newest"));
  if (shown(said, "writing") != "-")
    out += fmt::format(", that of epoch {} is being written", shown(said, "writing"));
  if (shown(said, "trouble") != "-") out += fmt::format("; {}", shown(said, "trouble"));
  return out + "\n";
}

/// A line for each listener that kept connections out.
std::string kept_out(const json& status) {
  std::string out;
  for (const json& k : items(status, "kept_out"))
    out += fmt::format(
        "{} kept out: {} connections of strangers, {} that broke the rules, {} requests of workers "
        "that are no members\n",
        shown(k, "by"), shown(k, "refused"), shown(k, "dropped"), shown(k, "fenced"));
  return out;
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

/// When a host goes away.
std::string when(const json& leaving) {
  if (!part(leaving, "in_s").is_number()) return "at no set time";
  return "in " + shown(leaving, "in_s", duration_text);
}

std::string head(const json& status) {
  std::string out = fmt::format("job {}: {}, up {}\n", shown(status, "job"), shown(status, "state"),
                                shown(status, "uptime_s", duration_text));
  if (number(status, "term") > 1 && part(status, "supervisor_s").is_number())
    out += fmt::format("its supervisor is number {}, since {}\n", shown(status, "term"),
                       shown(status, "supervisor_s", duration_text));
  if (const json& pulse = part(status, "pulse"); pulse.is_object())
    out += shown(pulse, "text") + "\n";
  out +=
      fmt::format("{} {}, generation {}, {} workers in the view, supervisor's term {}\n",
                  restarts_group(status) ? "restart" : "epoch",
                  shown(status, restarts_group(status) ? "group_restarts" : "epoch"),
                  shown(status, "generation"), shown(status, "world_size"), shown(status, "term"));
  if (const json& back = part(status, "rolling_back"); back.is_object())
    out += fmt::format("going back to the checkpoint of epoch {}: {}\n", shown(back, "to_epoch"),
                       shown(back, "why"));
  if (shown(status, "not_open") != "-") out += shown(status, "not_open") + "\n";
  if (shown(status, "waiting") != "-")
    out += fmt::format("{}{}\n", restarts_group(status) ? "" : "the next boundary waits: ",
                       shown(status, "waiting"));
  if (const json& leaving = part(status, "leaving"); leaving.is_object())
    out += fmt::format("every host goes away {} ({}): {}\n", when(leaving), shown(leaving, "why"),
                       shown(leaving, "text"));
  for (const json& host : items(status, "hosts"))
    if (const json& leaving = part(host, "leaving"); leaving.is_object())
      out += fmt::format("LEAVING {}: {} ({}): {}\n", shown(host, "host"), when(leaving),
                         shown(leaving, "why"), shown(leaving, "text"));
  if (const json& goodput = part(status, "goodput"); goodput.is_object())
    out += fmt::format("goodput {}\n", shown(goodput, "text"));
  out += journal(status);
  out += volume(status);
  return out + checkpoint(status) + kept_out(status) + "\n";
}

}  // namespace

Result<std::string> status_text(std::string_view text) {
  const json status = json::parse(text, nullptr, false);
  if (!status.is_object()) return fail(ErrorKind::kProtocol, "the supervisor's status is no JSON");
  // Reasons are in the words of hosts, drivers and programs.
  return screen_text(head(status) + workers(status) + servers(status) + gpus(status) +
                     troubled_hosts(status) + host_file(status));
}

}  // namespace dt::supervisor
