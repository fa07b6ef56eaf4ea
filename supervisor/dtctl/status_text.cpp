#include "supervisor/dtctl/status_text.h"

#include <array>
#include <cctype>
#include <map>
#include <vector>

#include "core/base/quantity.h"
#include "core/base/time.h"
#include "io/job/status_fields.h"
#include "io/line_prefixer.h"
#include "supervisor/dtctl/file_tail.h"
#include "supervisor/dtctl/folded_table.h"

namespace dt::supervisor {
namespace {

using enum Column;

/// A value as text; "-" when there is none.
std::string shown(const std::string& text) { return text.empty() ? "-" : text; }
std::string shown(const io::MaybeCount& n) { return n ? fmt::format("{}", *n) : "-"; }
std::string shown(const io::MaybeNumber& n, auto format) { return n ? format(*n) : "-"; }

/// A number as `format` has it, for a column of amounts.
Cell amount(const io::MaybeNumber& n, auto format) { return {shown(n, format), n.value_or(0)}; }
Cell amount(const io::MaybeCount& n) { return {shown(n), static_cast<double>(n.value_or(0))}; }

/// How much is said.
struct Detail {
  bool is_whole;  ///< Nothing is folded.
  /// Whether the list is too long to be shown as it is.
  [[nodiscard]] bool folds(const auto& list) const {
    return !is_whole && list.size() > FoldedTable::kWholeRows;
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
Cell why_of(const io::WorkerStatus& worker) {
  constexpr double kNews = 3;
  if (worker.waits)
    return {fmt::format("waits {} ({})", shown(worker.waits->text),
                        duration_text(worker.waits->for_s.value_or(0))),
            0, "waits for others that wait"};
  std::string stall = stall_text(worker, kNews);
  if (stall.empty()) return reason(shown(worker.slowest.value_or(worker.why)), worker.host);
  return {std::move(stall), 0, worker.stalls->waited_for ? "" : "no step"};
}

/// A member that the next epoch begins without is leaving already, for people.
std::string state_of(const io::WorkerStatus& worker) {
  return worker.leaves_next ? "LEAVING" : shown(worker.state);
}

std::string rate_text(double steps_per_s) { return fmt::format("{:.1f}", steps_per_s); }

std::string milliseconds_text(double seconds) { return fmt::format("{:.3g} ms", seconds * 1e3); }
std::string percent_text(double share) { return fmt::format("{:.0f} %", share * 100); }

std::string ago_text(double seconds) { return duration_text(seconds) + " ago"; }

/// "120", "120 of 938".
std::string step_of(const io::ProgressStatus& progress) {
  const std::string steps = shown(progress.steps_in_epoch);
  return shown(progress.step) + (steps == "-" ? "" : " of " + steps);
}

/// What rank 0's program reports.
std::string values(const io::Status& status) {
  for (const io::WorkerStatus& w : status.workers) {
    if (w.rank != 0 || w.values.empty()) continue;
    std::string out;
    for (const auto& [name, value] : w.values)
      out += fmt::format("{}{} {:.4g}", out.empty() ? "" : ", ", name, value);
    return fmt::format("worker {} reports {}\n", shown(w.id), out);
  }
  return "";
}

std::string workers(const io::Status& status, Detail detail) {
  const std::vector<FoldedTable::Head> heads = {
      {"WORKER", kIds},      {"RANK", kIds},     {"HOST", kHosts},     {"STATE", kSame},
      {"EPOCH", kSame},      {"STEP", kAmount},  {"STEPS/S", kAmount}, {"SAMPLES/S", kAmount},
      {"OWN/STEP", kAmount}, {"WAITS", kAmount}, {"RSS", kAmount},     {"OUTPUT", kAmount},
      {"PID", kOwn},         {"WHY", kSame}};
  FoldedTable table(heads, detail.is_whole);
  for (const io::WorkerStatus& w : status.workers) {
    const io::ProgressStatus progress = w.progress.value_or(io::ProgressStatus());
    table.add({{shown(w.id)},
               {shown(w.rank)},
               {shown(w.host)},
               {state_of(w)},
               {shown(progress.epoch)},
               {step_of(progress), amount(progress.step).amount},
               amount(w.steps_per_s, rate_text),
               amount(progress.samples_per_s, rate_text),
               amount(w.own_step_s, milliseconds_text),
               amount(w.waits_share, percent_text),
               amount(w.resident_bytes, bytes_text),
               amount(w.output_age_s, ago_text),
               {shown(w.pid)},
               why_of(w)});
  }
  FoldedTable texts({{"WORKER", kIds}, {"REPORTS", kSame}}, detail.is_whole);
  for (const io::WorkerStatus& w : status.workers) {
    std::string said;
    for (const auto& [name, text] : w.texts)
      said += fmt::format("{}{} {}", said.empty() ? "" : ", ", name, io::printable(text));
    if (!said.empty()) texts.add({{shown(w.id)}, {said}});
  }
  return table.text() + values(status) + (texts.empty() ? "" : "\n" + texts.text());
}

/// "cuda:0, NVIDIA H200", "cpu".
std::string device_of(const io::ServerStatus& server) {
  return shown(server.device) + (server.device_note.empty() ? "" : ", " + server.device_note);
}

std::string servers(const io::Status& status, Detail detail) {
  FoldedTable table(
      {{"SERVER", kIds}, {"HOST", kHosts}, {"STATE", kSame}, {"ADDRESS", kOwn}, {"DEVICE", kSame}},
      detail.is_whole);
  for (const io::ServerStatus& s : status.servers)
    table.add({{shown(s.id)},
               {shown(s.host)},
               {shown(s.state)},
               {s.address.empty() ? "-" : s.address + " port " + shown(s.port)},
               {device_of(s)}});
  return table.empty() ? "" : "\n" + table.text();
}

/// Hosts with trouble: cooling, given up, or with a reason.
std::string troubled_hosts(const io::Status& status, Detail detail) {
  const std::vector<FoldedTable::Head> heads = {
      {"HOST", kHosts},      {"WANTED", kAmount},   {"LINK", kSame}, {"ATTEMPTS", kAmount},
      {"RESTARTS", kAmount}, {"NEXT TRY", kAmount}, {"WHY", kSame}};
  FoldedTable table(heads, detail.is_whole);
  for (const io::HostStatus& h : status.hosts) {
    const bool suspect = h.life == "suspect" || h.life == "lost";
    if (!h.cooling_until_s && !h.given_up && !suspect && h.why.empty()) continue;
    const auto in_seconds = [](double s) { return fmt::format("in {:.0f} s", s); };
    const Cell next = amount(h.cooling_until_s, in_seconds);
    table.add({{shown(h.host)},
               amount(h.wanted),
               {shown(suspect ? h.life : h.link)},
               amount(h.attempts),
               amount(h.restarts),
               h.given_up ? Cell{"given up", next.amount, "given up"} : next,
               reason(shown(h.why), h.host)});
  }
  return table.empty() ? "" : "\n" + table.text();
}

/// "12.3/79.6 GiB".
std::string memory_of(const io::GpuStatus& gpu) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  if (!gpu.memory_used || !gpu.memory_total) return "-";
  return fmt::format("{:.1f}/{:.1f} GiB", static_cast<double>(*gpu.memory_used) / kGiB,
                     static_cast<double>(*gpu.memory_total) / kGiB);
}

Cell with_unit(const io::MaybeNumber& number, const char* unit) {
  return amount(number, [unit](double n) { return fmt::format("{:.0f} {}", n, unit); });
}

std::string joined(const auto& list, const char* between) {
  return shown(fmt::format("{}", fmt::join(list, between)));
}

std::string gpus(const io::Status& status, Detail detail) {
  const std::vector<FoldedTable::Head> heads = {
      {"GPU", kIds},     {"HOST", kHosts},   {"NAME", kSame},
      {"WORKERS", kOwn}, {"BUSY", kAmount},  {"MEMORY", kAmount},
      {"TEMP", kAmount}, {"POWER", kAmount}, {"TROUBLE", kSame}};
  FoldedTable table(heads, detail.is_whole);
  for (const io::GpuStatus& g : status.gpus)
    table.add({{shown(g.index)},
               {shown(g.host)},
               {shown(g.name)},
               {joined(g.workers, ",")},
               with_unit(g.busy_percent, "%"),
               {memory_of(g), amount(g.memory_used).amount},
               with_unit(g.temperature_c, "C"),
               with_unit(g.power_w, "W"),
               {joined(g.trouble, "; ")}});
  return table.empty() ? "" : "\n" + table.text();
}

/// That the shared volume stalls, or is slower than the output that comes.
std::string volume(const io::VolumeStatus& volume) {
  std::string out;
  if (const double doubtful = volume.lock_doubtful_s.value_or(0); doubtful > 0)
    out = fmt::format("nothing is started: .dtlaunch/lock could not be read for {}\n",
                      duration_text(doubtful));
  if (const double stalled = volume.stalled_s.value_or(0); stalled >= 1)
    return out + fmt::format("the shared volume has not answered for {}\n", duration_text(stalled));
  constexpr double kSlow = 5;
  const double age = volume.queue_age_s.value_or(0);
  if (age < kSlow) return out;
  return out + fmt::format("the shared volume is slow: output waits {} before it is written\n",
                           duration_text(age));
}

/// A list of hosts: one by one, or a long one as ranges: "n[1-500], n[501-900] x2".
std::string host_list(const std::vector<std::string>& hosts, Detail detail) {
  if (!detail.folds(hosts)) return joined(hosts, " ");
  std::map<std::string, std::size_t> lines_of;
  for (const std::string& host : hosts) ++lines_of[host];
  std::map<std::size_t, std::vector<std::string>> by_lines;
  for (const auto& [host, lines] : lines_of) by_lines[lines].push_back(host);
  std::string out;
  for (const auto& [lines, names] : by_lines)
    out += fmt::format("{}{}{}", out.empty() ? "" : ", ", fold_host_names(names),
                       lines == 1 ? "" : fmt::format(" x{}", lines));
  return out;
}

std::string host_file(const io::Status& status, Detail detail) {
  if (status.elastic != true) return "\nnot elastic: nothing joins or leaves\n";
  const io::FileStatus& file = status.file;
  std::string out =
      fmt::format("\n{}, last accepted:{}\n", shown(file.path),
                  file.accepted.empty() ? "" : " " + host_list(file.accepted, detail));
  if (!file.base.empty())
    out += fmt::format("base, which the file may not remove: {}\n", host_list(file.base, detail));
  if (detail.folds(file.kept))
    out += fmt::format("{} are hosts of the initial launch: their workers stay\n",
                       host_list(file.kept, detail));
  else
    for (const std::string& host : file.kept)
      out += fmt::format("{} is a host of the initial launch: its workers stay\n", host);
  if (!file.beyond_limit.empty())
    out += fmt::format("beyond --max-workers {}, started when others go: {}\n",
                       shown(status.max_workers), host_list(file.beyond_limit, detail));
  if (file.refused)
    out += fmt::format("the present content is refused: {}\n", shown(file.refused->why));
  if (status.log_lines)
    out += fmt::format("host_worker_log has {}\n", count_text(*status.log_lines, "line"));
  if (!status.log_foreign.empty())
    out += fmt::format("others have changed it: what they left is {}\n", status.log_foreign);
  return out;
}

std::string checkpoint(const io::Status& status) {
  const io::CheckpointStatus& said = status.checkpoint;
  const bool is_off = said.every.value_or(0) == 0 && said.interval_s.value_or(0) <= 0;
  if (is_off || restarts_group(status)) return "";
  if (!said.none_because.empty()) return said.none_because + "\n";
  std::string out =
      said.newest ? fmt::format("newest checkpoint: epoch {}", *said.newest) : "no checkpoint yet";
  if (said.writing) out += fmt::format(", that of epoch {} is being written", *said.writing);
  if (!said.trouble.empty()) out += fmt::format("; {}", said.trouble);
  return out + "\n";
}

/// What the listener, or several of them, kept out.
std::string kept_out_by(const std::string& by, const io::KeptOutStatus& kept) {
  return fmt::format(
      "{} kept out: {} connections of strangers, {} that broke the rules, {} requests of workers "
      "that are no members\n",
      by, shown(kept.refused), shown(kept.dropped), shown(kept.fenced));
}

/// A line for each listener that kept connections out; the sum of many.
std::string kept_out(const std::vector<io::KeptOutStatus>& all, Detail detail) {
  std::string out;
  io::KeptOutStatus sum{"", 0, 0, 0};
  for (const io::KeptOutStatus& k : all) {
    out += kept_out_by(shown(k.by), k);
    *sum.refused += k.refused.value_or(0);
    *sum.dropped += k.dropped.value_or(0);
    *sum.fenced += k.fenced.value_or(0);
  }
  return detail.folds(all) ? kept_out_by(fmt::format("{} servers and agents", all.size()), sum)
                           : out;
}

/// The journal's disk has no room, or little.
std::string journal(const io::JournalStatus& said) {
  if (said.trouble.empty()) return "";
  if (said.waits_s.value_or(0) <= 0) return said.trouble + "\n";
  return fmt::format("{}: nothing is decided for {}; training waits at the next boundary\n",
                     said.trouble, duration_text(*said.waits_s));
}

/// The nodes that dtctl grow has asked for.
std::string fleet(const io::Status& status) {
  if (!status.fleet) return "";
  return fmt::format("{} of {}: {}{}\n", status.fleet->provider == "Slurm" ? "nodes" : "machines",
                     shown(status.fleet->provider), shown(status.fleet->text),
                     status.fleet->trouble.empty() ? "" : "; " + status.fleet->trouble);
}

/// The epoch, and what the workers do in it.
std::string at_work(const io::Status& status) {
  struct Doing {
    std::string_view verb;
    std::uint64_t count = 0;
  };
  std::array all{Doing{restarts_group(status) ? "run" : "train"}, Doing{"start"}, Doing{"leave"},
                 Doing{"end"}};
  for (const io::WorkerStatus& w : status.workers) {
    const std::string state = state_of(w);
    const bool starts =
        state == "SEEN" || state == "PREPARING" || state == "STARTING" || state == "WARM";
    ++all[state == "MEMBER" ? 0 : starts ? 1 : state == "LEAVING" ? 2 : 3].count;
  }
  const bool restarts = restarts_group(status);
  const io::MaybeCount& number = restarts ? status.group_restarts : status.epoch;
  std::string out = number ? fmt::format("{} {}: ", restarts ? "restart" : "epoch", *number) : "";
  for (const Doing& one : all)
    if (one.count > 0 || &one == all.data())
      out += fmt::format("{}{} {}{}", &one == all.data() ? "" : ", ", one.count, one.verb,
                         one.count == 1 ? "s" : "");
  return out + "\n";
}

/// The lost time by cause; nothing below one per cent of all.
std::string lost_time(const io::Status& status) {
  constexpr double kWorthTelling = 0.01;
  if (!status.goodput || status.goodput->share.value_or(0) > 1 - kWorthTelling) return "";
  std::string out;
  for (const auto& [cause, lost] : status.goodput->lost_s)
    if (lost >= 0.05) out += fmt::format("{} {} {:.1f} s", out.empty() ? "" : ",", cause, lost);
  return fmt::format("lost of {:.0f} worker-seconds:{}\n", status.goodput->worker_s.value_or(0),
                     out);
}

double worker_hours(const io::Status& status) {
  constexpr double kHour_s = 3600;
  return status.goodput ? status.goodput->worker_s.value_or(0) / kHour_s : 0;
}

/// Who goes away, when, why, and what becomes of the workers.
std::string leaving_text(const std::string& who, const io::LeavingStatus& leaving) {
  if (!leaving.in_s)
    return fmt::format("{}: {} ({})\n", who, shown(leaving.text), shown(leaving.why));
  return fmt::format("{}: in {} ({}): {}\n", who, duration_text(*leaving.in_s), shown(leaving.why),
                     shown(leaving.text));
}

std::string head(const io::Status& status, Detail detail) {
  std::string out = fmt::format("job {}: {}, up {}\n", shown(status.job), shown(status.state),
                                shown(status.uptime_s, duration_text));
  if (status.term.value_or(0) > 1 && status.supervisor_s)
    out += fmt::format("its supervisor is number {}, since {}\n", *status.term,
                       duration_text(*status.supervisor_s));
  if (!status.pulse.text.empty()) out += status.pulse.text + "\n";
  out += at_work(status);
  if (const auto& back = status.rolling_back)
    out += fmt::format("going back to the checkpoint of epoch {}: {}\n", shown(back->to_epoch),
                       shown(back->why));
  if (!status.not_open.empty()) out += status.not_open + "\n";
  if (!status.waiting.empty())
    out += fmt::format("{}{}\n",
                       restarts_group(status) ? "" : "the next boundary waits: ", status.waiting);
  if (status.leaving) out += leaving_text("every host goes away", *status.leaving);
  for (const io::HostStatus& host : status.hosts)
    if (host.leaving) out += leaving_text("LEAVING " + shown(host.host), *host.leaving);
  if (const auto& still = status.standstill) {
    out += fmt::format("nothing has moved for {}: {}", shown(still->for_s, duration_text),
                       shown(still->text));
    if (still->ends_in_s)
      out += fmt::format("; the job ends in {} (--hang-timeout)", duration_text(*still->ends_in_s));
    out += "\n";
  }
  out += lost_time(status);
  if (const double hours = worker_hours(status); hours >= 0.1)
    out += fmt::format("worker-hours {:.1f}\n", hours);
  if (status.balance) out += fmt::format("balance {}\n", shown(status.balance->text));
  out += fleet(status);
  out += journal(status.journal);
  out += volume(status.volume);
  return out + checkpoint(status) + kept_out(status.kept_out, detail) + "\n";
}

}  // namespace

std::string stall_text(const io::WorkerStatus& worker, double least) {
  const auto& stalls = worker.stalls;
  if (!stalls || stalls->for_s.value_or(0) < least) return "";
  return fmt::format("no step for {}{}{}", duration_text(stalls->for_s.value_or(0)),
                     stalls->waited_for ? "; the others wait for it" : "",
                     stalls->process.empty() ? "" : "; " + stalls->process);
}

Result<std::string> status_text(std::string_view text, bool is_whole) {
  const auto read = io::status_from(text);
  if (!read) return tl::unexpected(read.error());
  const io::Status& status = *read;
  const Detail detail{is_whole};
  // Reasons are in the words of hosts, drivers and programs.
  return screen_text(head(status, detail) + workers(status, detail) + servers(status, detail) +
                     gpus(status, detail) + troubled_hosts(status, detail) +
                     host_file(status, detail));
}

}  // namespace dt::supervisor
