#include "supervisor/control/job_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/job/boundary.h"
#include "core/job/goodput.h"
#include "core/job/host_table.h"
#include "core/job/job.h"
#include "core/job/membership.h"
#include "core/job/notices.h"
#include "core/job/server_group.h"
#include "core/job/stragglers.h"
#include "core/protocol/gpu_health.h"
#include "supervisor/control/pulse.h"

namespace dt::supervisor {
namespace {

using nlohmann::json;

std::string_view name_of(HostState::Link link) {
  constexpr std::string_view kNames[] = {"none", "attaching", "up", "down"};
  return kNames[static_cast<std::size_t>(link)];
}

std::string_view name_of(Life life) {
  constexpr std::string_view kNames[] = {"alive", "alive", "suspect", "lost"};
  return kNames[static_cast<std::size_t>(life)];
}

/// The value, an id as its number; null for none.
template <class T>
json or_null(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (requires { value->value; })
    return value->value;
  else
    return *value;
}

/// How long ago that was, in seconds.
json age(const std::optional<Time>& then, Time now) {
  return then ? json(seconds(now - *then)) : json(nullptr);
}

const ProcessNotes& notes_of(const StatusInput& in, ProcessId process) {
  static const ProcessNotes kNone;
  const auto notes = in.processes.find(process);
  return notes == in.processes.end() ? kNone : notes->second;
}

/// The numbers of the GPUs that a worker sees.
json gpus_of(const StatusInput& in, const Host& host, WorkerId worker) {
  const auto notes = in.hosts.find(host);
  if (notes == in.hosts.end() || !in.reach(host).is_up) return json::array();
  for (const auto& [id, gpus] : notes->second.gpus.workers)
    if (id == worker) return gpus;
  return json::array();
}

json gpu_json(const std::string& host, const GpuReport& gpu, const GpuHealth& all) {
  json workers = json::array();
  for (const auto& [id, gpus] : all.workers)
    if (std::find(gpus.begin(), gpus.end(), gpu.index) != gpus.end()) workers.push_back(id.value);
  return {{"host", host},
          {"index", gpu.index},
          {"uuid", gpu.uuid},
          {"name", gpu.name},
          {"workers", std::move(workers)},
          {"busy_percent", or_null(gpu.busy_percent)},
          {"memory_used", or_null(gpu.memory_used)},
          {"memory_total", or_null(gpu.memory_total)},
          {"temperature_c", or_null(gpu.temperature_c)},
          {"power_w", gpu.power_mw ? json(*gpu.power_mw / 1000.0) : json(nullptr)},
          {"ecc_recent", or_null(gpu.ecc_recent)},
          {"ecc_ever", or_null(gpu.ecc_ever)},
          {"retired_pages", or_null(gpu.retired_pages)},
          {"remapped_rows", or_null(gpu.remapped_rows)},
          {"xid_errors", gpu.xid_errors},
          {"last_xid", gpu.xid_errors > 0 ? json(gpu.last_xid) : json(nullptr)},
          {"held_back", gpu.held_back},
          {"trouble", troubles_of(gpu)}};
}

json gpus_json(const StatusInput& in) {
  json out = json::array();
  for (const auto& [host, notes] : in.hosts) {
    if (!in.reach(host).is_up) continue;
    const GpuHealth& health = notes.gpus;
    for (const GpuReport& gpu : health.gpus) out.push_back(gpu_json(to_string(host), gpu, health));
    if (!health.trouble.empty())
      out.push_back({{"host", to_string(host)}, {"index", nullptr}, {"trouble", {health.trouble}}});
  }
  return out;
}

json pulse_json(const StatusInput& in) {
  const Pulse::Crossings& crossings = in.pulse.crossings();
  return {{"text", in.pulse.line(in.job, in.pulse_now, in.uptime_s)},
          {"epoch_s", or_null(in.pulse.epoch_s())},
          {"boundary_age_s", or_null(in.pulse.boundary_age_s(in.pulse_now))},
          {"checkpoint_age_s", or_null(in.pulse.checkpoint_age_s(in.pulse_now))},
          {"restarts", in.pulse.restarts()},
          {"checkpoints", in.pulse.checkpoints()},
          {"boundaries", crossings.count},
          {"boundaries_s", seconds(crossings.all)},
          {"last_boundary_s", crossings.count > 0 ? json(seconds(crossings.last)) : json(nullptr)}};
}

/// Why a starting worker waits, if the job machine has no reason.
std::string why_not_yet(const StatusInput& in, const Worker& w) {
  if (!in.job.hosts().all().contains(w.host)) return "";
  const HostState& h = in.job.hosts().at(w.host);
  if (w.state == WorkerState::kSeen && h.cooling_until && *h.cooling_until > in.now)
    return fmt::format("waits for its host's next try: {}", h.why);
  if (w.state != WorkerState::kSeen && w.state != WorkerState::kPreparing) return "";
  if (h.preparing) return "the host's check runs (--preflight, --prepare-data)";
  if (h.link == HostState::Link::kUp) return "about to be started";
  const std::string doing = in.reach(w.host).doing;
  return doing.empty() ? "its host is being reached" : doing;
}

/// A shorter one may be a slow step.
bool shows_standstill(const Stragglers& stragglers) {
  return stragglers.standstill().lasted() >= std::chrono::seconds(10);
}

json progress_json(const StatusInput& in, WorkerId id) {
  const ProcessId process{Role::kWorker, id.value};
  const auto* at = in.job.stragglers().hang_watch().position(id);
  const auto figures = in.pulse.of(process).figures;
  if (!at && !figures) return nullptr;
  json out{{"epoch", nullptr},          {"step", nullptr},          {"age_s", nullptr},
           {"steps_in_epoch", nullptr}, {"samples_total", nullptr}, {"samples_per_s", nullptr}};
  if (at) {
    out["epoch"] = at->epoch.value;
    out["step"] = at->step;
    out["age_s"] = age(at->since, in.now);
  }
  if (figures) {
    if (figures->steps_in_epoch > 0) out["steps_in_epoch"] = figures->steps_in_epoch;
    out["samples_total"] = figures->samples;
    out["samples_per_s"] = or_null(in.pulse.samples_per_s(process, in.pulse_now));
  }
  return out;
}

json worker_json(const StatusInput& in, WorkerId id, const Worker& w, bool leaves_next) {
  const ProcessId process{Role::kWorker, id.value};
  const Pulse::Process seen = in.pulse.of(process);
  const Stragglers& stragglers = in.job.stragglers();
  json entry{{"id", id.value},
             {"rank", nullptr},
             {"host", to_string(w.host)},
             {"slot", w.slot},
             {"state", name(w.state)},
             {"why", !w.why.empty() ? w.why
                     : leaves_next  ? "leaves at the next epoch"
                     : notes_of(in, process).is_held
                         ? "writes more output than the shared volume takes, and waits for it"
                         : why_not_yet(in, w)},
             {"leaves_next", leaves_next},
             {"pid", notes_of(in, process).pid},
             {"steps_per_s", or_null(seen.steps_per_s)},
             {"resident_bytes", or_null(seen.resident)},
             {"output_age_s", age(seen.output_at, in.pulse_now)},
             {"own_step_s", nullptr},
             {"waits_share", nullptr},
             {"waited_s", nullptr},
             {"slowest", nullptr},
             {"stalls", nullptr},
             {"waits", nullptr},
             {"opened", w.opened},
             {"progress", nullptr},
             {"gpus", gpus_of(in, w.host, id)}};
  if (w.state == WorkerState::kMember) entry["rank"] = or_null(in.job.boundary().rank_of(id));
  entry["progress"] = progress_json(in, id);
  if (seen.figures) entry["waited_s"] = static_cast<double>(seen.figures->waited_ns) / 1e9;
  if (const Pace::Share* share = in.pulse.pace().of(id)) {
    entry["own_step_s"] = seconds(share->own);
    entry["waits_share"] = share->waits;
  }
  if (const auto& slowest = in.pulse.pace().slowest(); slowest && slowest->worker == id)
    entry["slowest"] = slowest->text();
  json& values = entry["values"] = json::object();
  if (seen.figures)
    for (const auto& [key, value] : seen.figures->values) values[key] = value;
  const auto& stalls = stragglers.stalls();
  if (const auto s = stalls.find(id); s != stalls.end() && s->second.lasted > Duration{})
    entry["stalls"] = {{"for_s", seconds(s->second.lasted)},
                       {"waited_for", s->second.is_waited_for},
                       {"process", s->second.process}};
  if (shows_standstill(stragglers) && in.job.boundary().contributes(id))
    entry["waits"] = {{"for_s", seconds(*stragglers.standstill().lasted())},
                      {"text", stragglers.standstill().wait_of(id)}};
  return entry;
}

json standstill_json(const StatusInput& in) {
  const Stragglers& stragglers = in.job.stragglers();
  if (!shows_standstill(stragglers)) return nullptr;
  const Duration lasted = *stragglers.standstill().lasted();
  const Duration limit = in.spec.rules.hang_timeout;
  json out{
      {"for_s", seconds(lasted)}, {"text", stragglers.standstill().text()}, {"ends_in_s", nullptr}};
  if (limit > Duration{}) out["ends_in_s"] = seconds(limit - lasted);
  return out;
}

json workers_json(const StatusInput& in) {
  json out = json::array();
  const std::vector<WorkerId> leaves =
      in.job.membership().plan(in.job.boundary().contributors(), in.now).leaves;
  for (const auto& [id, w] : in.job.membership().workers()) {
    if (w.state == WorkerState::kGone) continue;
    const bool leaves_next = std::find(leaves.begin(), leaves.end(), id) != leaves.end();
    out.push_back(worker_json(in, id, w, leaves_next));
  }
  return out;
}

json servers_json(const StatusInput& in) {
  json out = json::array();
  for (const auto& [id, s] : in.job.servers().all()) {
    const ProcessNotes& notes = notes_of(in, {Role::kServer, id.value});
    const ServerWatch& watch = in.job.servers().watch();
    const auto silence = watch.silence(id);
    out.push_back({{"id", id.value},
                   {"host", to_string(s.host)},
                   {"state", s.address.empty() ? "starting"
                             : silence         ? "silent"
                                               : "listening"},
                   {"silent_s", silence ? json(seconds(*silence)) : json(nullptr)},
                   {"process", watch.process(id)},
                   {"address", s.address},
                   {"port", s.port},
                   {"pid", notes.pid},
                   {"resident_bytes", or_null(in.pulse.of({Role::kServer, id.value}).resident)},
                   {"device", notes.device},
                   {"device_note", notes.device_note}});
  }
  return out;
}

/// Workers of the host in host_worker beyond --max-workers.
std::uint32_t beyond_limit(const StatusInput& in, const Host& host) {
  for (const HostSlots& s : in.job.membership().beyond_limit())
    if (s.host == host) return s.slots;
  return 0;
}

/// A host, or all of them, go away: why, when, and what becomes of workers and servers.
json leaving_json(const StatusInput& in, const Notices::Notice& notice, std::string text) {
  const auto left = in.job.notices().left(notice);
  return {{"why", notice.why},
          {"in_s", left ? json(seconds(*left)) : json(nullptr)},
          {"text", std::move(text)}};
}

/// Null: none of the host.
json leaving_json(const StatusInput& in, const Host& host) {
  const Notices& notices = in.job.notices();
  const auto notice = notices.of_hosts().find(host);
  if (notice == notices.of_hosts().end()) return nullptr;
  return leaving_json(in, notice->second, notices.outlook(host));
}

/// Null: the job goes on.
json job_leaving_json(const StatusInput& in) {
  const Notices& notices = in.job.notices();
  const Notices::Notice* notice = notices.of_job();
  return notice ? leaving_json(in, *notice, notices.outlook()) : json(nullptr);
}

json hosts_json(const StatusInput& in) {
  json out = json::array();
  const Membership& membership = in.job.membership();
  const auto add_new = [&](const Host& host) {
    out.push_back({{"host", to_string(host)},
                   {"wanted", membership.wanted(host)},
                   {"beyond_limit", beyond_limit(in, host)},
                   {"link", "none"},
                   {"life", "alive"}});
  };
  const auto is_known = [&in](const Host& host) { return in.job.hosts().all().contains(host); };
  // Hosts that the job has nothing to do with yet.
  for (const HostSlots& s : membership.beyond_limit())
    if (!is_known(s.host) && membership.wanted(s.host) == 0) add_new(s.host);
  for (const Host& host : membership.hosts())
    if (!is_known(host) && membership.wanted(host) > 0) add_new(host);
  for (const auto& [host, h] : in.job.hosts().all()) {
    const std::uint32_t wanted = membership.wanted(host);
    const std::uint32_t beyond = beyond_limit(in, host);
    const std::uint32_t empty = membership.empty_places(host);
    const bool leaves = in.job.notices().of_hosts().contains(host);
    if (wanted + beyond + empty == 0 && h.link == HostState::Link::kNone && !leaves) continue;
    const bool is_cooling = h.cooling_until && *h.cooling_until > in.now;
    const Host& given = in.job.hosts().as_given(host);
    json entry{
        {"host", to_string(host)},
        {"via", given.via ? json(to_text(*given.via)) : json(nullptr)},
        {"gpus", given.gpus.empty() ? json(nullptr) : json(given.gpus)},
        {"wanted", wanted},
        {"beyond_limit", beyond},
        {"empty_places", empty},
        {"link", name_of(h.link)},
        {"life", name_of(in.job.hosts().liveness().life(host, std::nullopt, in.now))},
        {"prepared", h.prepared},
        {"cooling_until_s", is_cooling ? json(seconds(*h.cooling_until - in.now)) : json(nullptr)},
        {"given_up", h.given_up},
        {"why", h.why},
        {"last_death", h.last_death},
        {"check", h.check},
        {"attempts", h.attempts},
        {"restarts", h.restarts.count()},
        {"leaving", leaving_json(in, host)}};
    if (h.check == "reach") entry["reach_command"] = in.reach(host).command;
    out.push_back(std::move(entry));
  }
  return out;
}

json checkpoint_json(const StatusInput& in) {
  const Checkpoints& checkpoints = in.job.checkpoints();
  return {{"every", in.spec.rules.checkpoint_every},
          {"interval_s", seconds(in.spec.rules.checkpoint_interval)},
          {"none_because", checkpoints.no_checkpoints(in.job.servers().hosts())},
          {"newest", or_null(checkpoints.newest())},
          {"bytes", checkpoints.bytes() > 0 ? json(checkpoints.bytes()) : json(nullptr)},
          {"writing", or_null(checkpoints.saving())},
          {"trouble", checkpoints.trouble()}};
}

/// The job is going back to a checkpoint: to which epoch, and why.
json rolling_back_json(const Job& job) {
  const auto& epoch = job.boundary().returns_to();
  if (!epoch) return nullptr;
  return {{"to_epoch", epoch->value}, {"why", job.servers().why()}};
}

json kept_out_json(const StatusInput& in) {
  json out = json::array();
  const auto tell = [&out](const std::string& by, const KeptOut& what) {
    if (what == KeptOut{}) return;
    out.push_back({{"by", by},
                   {"refused", what.refused},
                   {"dropped", what.dropped},
                   {"fenced", what.fenced}});
  };
  for (const auto& [process, notes] : in.processes) tell(to_string(process), notes.kept_out);
  for (const auto& [host, notes] : in.hosts) tell("agent of " + to_string(host), notes.kept_out);
  tell("control socket", in.kept_out);
  return out;
}

json volume_json(const VolumeFacts& volume) {
  return {{"stalled_s", volume.stalled_s},       {"dropped_bytes", volume.dropped_bytes},
          {"queue_length", volume.queue_length}, {"queue_bytes", volume.queue_bytes},
          {"queue_age_s", volume.queue_age_s},   {"lock_doubtful_s", volume.lock_doubtful_s}};
}

json balance_json(const StatusInput& in) {
  const Pace& pace = in.pulse.pace();
  if (!pace.balance()) return nullptr;
  std::string text = fmt::format("{:.0f} %", *pace.balance() * 100);
  const Worker* slow = pace.slowest() ? in.job.membership().find(pace.slowest()->worker) : nullptr;
  if (slow)
    text += fmt::format(" (worker {} on {} keeps {} waiting)", pace.slowest()->worker, slow->host,
                        in.job.boundary().contributors().size() - 1);
  return {{"share", *pace.balance()}, {"text", text}};
}

json goodput_json(const Goodput& time) {
  if (!time.share()) return nullptr;
  json lost = json::object();
  for (const char* cause : kLossCauses) lost[cause] = 0.0;
  for (const auto& [cause, d] : time.by_cause()) lost[cause] = seconds(d);
  return {{"share", *time.share()},
          {"worker_s", seconds(time.total())},
          {"lost_s", std::move(lost)},
          {"text", time.summary()}};
}

/// The lines of a host_worker.
json lines_of(const std::vector<HostSlots>& hosts) {
  json out = json::array();
  for (const HostSlots& s : hosts) out.insert(out.end(), s.slots, to_string(s.host));
  return out;
}

json file_json(const StatusInput& in) {
  const Membership& membership = in.job.membership();
  json kept = json::array();
  for (const Host& host : membership.refused_removals(membership.file()))
    kept.push_back(to_string(host));
  json refused = nullptr;
  if (in.file_refusal) refused = {{"why", *in.file_refusal}};
  return {{"path", in.spec.job_dir + "/host_worker"},
          {"accepted", lines_of(membership.file())},
          {"kept", std::move(kept)},
          {"beyond_limit", lines_of(membership.beyond_limit())},
          {"refused", std::move(refused)}};
}

}  // namespace

std::string not_open(const Job& job, const io::JobSpec& spec, double uptime_s) {
  if (spec.rules.on_change == OnChange::kRestart) return "";
  if (!spec.elastic || job.opened() || job.finishing() || job.ending()) return "";
  return fmt::format("no worker has opened a kvstore yet (up {}): until one does, nothing joins",
                     duration_text(uptime_s));
}

std::string status_json(const StatusInput& in) {
  const Boundary& view = in.job.boundary();
  const bool restarts = in.spec.rules.on_change == OnChange::kRestart;
  const json out{{"job", in.spec.job},
                 {"state", in.stopping ? "stopping" : std::string(in.job.phase())},
                 {"elastic", in.spec.elastic},
                 {"opaque", !in.job.opened()},
                 {"term", in.term},
                 {"generation", view.generation().value},
                 {"epoch", or_null(view.epoch())},
                 {"world_size", view.members().size()},
                 {"on_change", restarts ? "restart" : "refuse"},
                 {"group_restarts", in.job.group_restarts()},
                 {"min_workers", in.spec.rules.limits.least},
                 {"max_workers", in.spec.rules.limits.most},
                 {"uptime_s", in.uptime_s},
                 {"supervisor_s", in.supervisor_s},
                 {"waiting", in.job.pending_reason()},
                 {"leaving", job_leaving_json(in)},
                 {"pulse", pulse_json(in)},
                 {"not_open", in.stopping ? "" : not_open(in.job, in.spec, in.uptime_s)},
                 {"standstill", standstill_json(in)},
                 {"goodput", goodput_json(in.job.goodput())},
                 {"balance", balance_json(in)},
                 {"workers", workers_json(in)},
                 {"servers", servers_json(in)},
                 {"hosts", hosts_json(in)},
                 {"checkpoint", checkpoint_json(in)},
                 {"file", file_json(in)},
                 {"rolling_back", rolling_back_json(in.job)},
                 {"gpus", gpus_json(in)},
                 {"kept_out", kept_out_json(in)},
                 {"fleet", in.fleet},
                 {"log_lines", in.job.log_lines()},
                 {"log_foreign", in.foreign_log},
                 {"logs", io::job_files_dir(in.spec) + "/logs"},
                 {"journal", {{"waits_s", in.journal_waits_s}, {"trouble", in.journal_trouble}}},
                 {"volume", volume_json(in.volume)}};
  // Names come from drivers: bytes that are not UTF-8 are replaced.
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace dt::supervisor
