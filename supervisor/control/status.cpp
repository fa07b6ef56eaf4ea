#include "supervisor/control/status.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/time.h"
#include "core/protocol/gpu_health.h"

namespace dt::supervisor {
namespace {

using nlohmann::json;

std::string_view name_of(HostState::Link link) {
  switch (link) {
    case HostState::Link::kNone:
      return "none";
    case HostState::Link::kAttaching:
      return "attaching";
    case HostState::Link::kUp:
      return "up";
    case HostState::Link::kDown:
      return "down";
  }
  return "none";
}

std::string_view name_of(Life life) {
  switch (life) {
    case Life::kAlive:
    case Life::kUnsupervised:
      return "alive";
    case Life::kSuspect:
      return "suspect";
    case Life::kDead:
      return "lost";
  }
  return "alive";
}

/// The numbers of the GPUs that a worker sees.
json gpus_of(const StatusInput& in, const std::string& host, WorkerId worker) {
  const auto found = in.gpus.find(host);
  if (found == in.gpus.end()) return json::array();
  for (const auto& [id, gpus] : found->second->workers)
    if (id == worker) return gpus;
  return json::array();
}

json gpu_json(const std::string& host, const GpuReport& gpu, const GpuHealth& all) {
  const auto shown = [](const auto& value) { return value ? json(*value) : json(nullptr); };
  json workers = json::array();
  for (const auto& [id, gpus] : all.workers)
    if (std::find(gpus.begin(), gpus.end(), gpu.index) != gpus.end()) workers.push_back(id.value);
  json entry{{"host", host},
             {"index", gpu.index},
             {"uuid", gpu.uuid},
             {"name", gpu.name},
             {"workers", std::move(workers)},
             {"busy_percent", shown(gpu.busy_percent)},
             {"memory_used", shown(gpu.memory_used)},
             {"memory_total", shown(gpu.memory_total)},
             {"temperature_c", shown(gpu.temperature_c)},
             {"power_w", nullptr},
             {"ecc_recent", shown(gpu.ecc_recent)},
             {"ecc_ever", shown(gpu.ecc_ever)},
             {"retired_pages", shown(gpu.retired_pages)},
             {"remapped_rows", shown(gpu.remapped_rows)},
             {"xid_errors", gpu.xid_errors},
             {"last_xid", nullptr},
             {"held_back", gpu.held_back},
             {"trouble", troubles_of(gpu)}};
  if (gpu.power_mw) entry["power_w"] = *gpu.power_mw / 1000.0;
  if (gpu.xid_errors > 0) entry["last_xid"] = gpu.last_xid;
  return entry;
}

json gpus_json(const StatusInput& in) {
  json out = json::array();
  for (const auto& [host, health] : in.gpus) {
    for (const GpuReport& gpu : health->gpus) out.push_back(gpu_json(host, gpu, *health));
    if (!health->trouble.empty())
      out.push_back({{"host", host}, {"index", nullptr}, {"trouble", {health->trouble}}});
  }
  return out;
}

template <class T>
void set(json& object, const char* key, const std::optional<T>& value) {
  object[key] = value ? json(*value) : json(nullptr);
}

json pulse_json(const StatusInput& in) {
  if (!in.pulse) return nullptr;
  json out{{"text", in.pulse->line(in.job, in.pulse_now, in.uptime_s)},
           {"restarts", in.pulse->restarts()}};
  set(out, "epoch_s", in.pulse->epoch_s());
  set(out, "boundary_age_s", in.pulse->boundary_age_s(in.pulse_now));
  set(out, "checkpoint_age_s", in.pulse->checkpoint_age_s(in.pulse_now));
  return out;
}

/// Why a starting worker waits, if the job machine has no reason.
std::string why_not_yet(const StatusInput& in, const Worker& w) {
  const auto host = in.job.hosts().find(w.host);
  if (host == in.job.hosts().end()) return "";
  const HostState& h = host->second;
  if (w.state == WorkerState::kSeen && h.cooling_until && *h.cooling_until > in.now)
    return fmt::format("waits for its host's next try: {}", h.why);
  if (w.state != WorkerState::kSeen && w.state != WorkerState::kPreparing) return "";
  if (h.preparing) return "the host's data check runs";
  if (h.link == HostState::Link::kUp) return "about to be started";
  const auto doing = in.reaching.find(to_string(w.host));
  return doing == in.reaching.end() ? "its host is being reached" : doing->second;
}

json workers_json(const StatusInput& in) {
  json out = json::array();
  const auto since = [&in](Time then) { return seconds(in.now - then); };
  const std::vector<WorkerId> leaves =
      in.job.membership().plan(in.job.boundary().contributors(), in.now).leaves;
  for (const auto& [id, w] : in.job.membership().workers()) {
    if (w.state == WorkerState::kGone) continue;
    const bool leaves_next = std::find(leaves.begin(), leaves.end(), id) != leaves.end();
    json entry{{"id", id.value},
               {"rank", nullptr},
               {"host", to_string(w.host)},
               {"state", name(w.state)},
               {"why", !w.why.empty() ? w.why
                       : leaves_next  ? "leaves at the next epoch"
                                      : why_not_yet(in, w)},
               {"leaves_next", leaves_next},
               {"pid", 0},
               {"stalls", nullptr},
               {"opened", w.opened},
               {"progress", nullptr},
               {"gpus", gpus_of(in, to_string(w.host), id)}};
    if (w.state == WorkerState::kMember) {
      if (const auto rank = in.job.boundary().rank_of(id)) entry["rank"] = rank->value;
    }
    if (const auto p = in.processes.find({Role::kWorker, id.value}); p != in.processes.end()) {
      entry["pid"] = p->second.pid;
    }
    for (const char* key : {"steps_per_s", "resident_bytes", "output_age_s"}) entry[key] = nullptr;
    if (in.pulse) {
      const ProcessId process{Role::kWorker, id.value};
      set(entry, "steps_per_s", in.pulse->steps_per_s(id));
      set(entry, "resident_bytes", in.pulse->resident(process));
      set(entry, "output_age_s", in.pulse->output_age_s(process, in.pulse_now));
    }
    if (const auto at = in.job.stragglers().hang_watch().position(id))
      entry["progress"] = {
          {"epoch", at->epoch.value}, {"step", at->step}, {"age_s", since(at->since)}};
    const auto& stalls = in.job.stragglers().stalls().all();
    if (const auto s = stalls.find(id); s != stalls.end() && s->second.lasted > Duration{})
      entry["stalls"] = {{"for_s", seconds(s->second.lasted)},
                         {"waited_for", s->second.is_waited_for},
                         {"process", s->second.process}};
    out.push_back(std::move(entry));
  }
  return out;
}

json servers_json(const StatusInput& in) {
  json out = json::array();
  for (const auto& [id, s] : in.job.servers()) {
    const auto p = in.processes.find({Role::kServer, id.value});
    const ProcessNotes notes = p == in.processes.end() ? ProcessNotes() : p->second;
    const auto silence = in.job.server_group().watch().silence(id);
    out.push_back({{"id", id.value},
                   {"host", to_string(s.host)},
                   {"state", s.address.empty() ? "starting"
                             : silence         ? "silent"
                                               : "listening"},
                   {"silent_s", silence ? json(seconds(*silence)) : json(nullptr)},
                   {"process", in.job.server_group().watch().process(id)},
                   {"address", s.address},
                   {"port", s.port},
                   {"pid", notes.pid},
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

json hosts_json(const StatusInput& in) {
  json out = json::array();
  const auto is_known = [&in](const Host& host) { return in.job.hosts().count(host) != 0; };
  // Hosts that the job has nothing to do with yet.
  for (const HostSlots& s : in.job.membership().beyond_limit())
    if (!is_known(s.host) && in.job.membership().wanted(s.host) == 0)
      out.push_back({{"host", to_string(s.host)},
                     {"wanted", 0},
                     {"beyond_limit", s.slots},
                     {"link", "none"},
                     {"life", "alive"}});
  for (const Host& host : in.job.membership().hosts())
    if (!is_known(host) && in.job.membership().wanted(host) > 0)
      out.push_back({{"host", to_string(host)},
                     {"wanted", in.job.membership().wanted(host)},
                     {"beyond_limit", beyond_limit(in, host)},
                     {"link", "none"},
                     {"life", "alive"}});
  for (const auto& [host, h] : in.job.hosts()) {
    const std::uint32_t wanted = in.job.membership().wanted(host);
    const std::uint32_t beyond = beyond_limit(in, host);
    if (wanted == 0 && beyond == 0 && h.link == HostState::Link::kNone &&
        in.job.membership().empty_places(host) == 0)
      continue;
    json entry{{"host", to_string(host)},
               {"wanted", wanted},
               {"beyond_limit", beyond},
               {"empty_places", in.job.membership().empty_places(host)},
               {"link", name_of(h.link)},
               {"life", name_of(in.job.life(host, in.now))},
               {"prepared", h.prepared},
               {"cooling_until_s", nullptr},
               {"given_up", h.given_up},
               {"why", h.why},
               {"check", h.check},
               {"attempts", h.attempts},
               {"restarts", h.restarts.count()}};
    if (h.check == "reach" && in.reach_command) entry["reach_command"] = in.reach_command(host);
    if (h.cooling_until && *h.cooling_until > in.now)
      entry["cooling_until_s"] = seconds(*h.cooling_until - in.now);
    out.push_back(std::move(entry));
  }
  return out;
}

json checkpoint_json(const StatusInput& in) {
  const Checkpoints& checkpoints = in.job.checkpoints();
  json out{{"every", in.spec.rules.checkpoint_every},
           {"interval_s", seconds(in.spec.rules.checkpoint_interval)},
           {"none_because", in.no_checkpoints},
           {"newest", nullptr},
           {"writing", nullptr},
           {"trouble", in.job.server_group().saver().trouble()}};
  if (checkpoints.newest()) out["newest"] = checkpoints.newest()->value;
  if (checkpoints.saving()) out["writing"] = checkpoints.saving()->epoch.value;
  return out;
}

/// The job is going back to a checkpoint: to which epoch, and why.
json rolling_back_json(const Job& job) {
  const auto& epoch = job.boundary().returns_to();
  if (!epoch) return nullptr;
  return {{"to_epoch", epoch->value}, {"why", job.server_group().why()}};
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
  for (const auto& [by, what] : in.kept_out) tell(by, what);
  return out;
}

}  // namespace

std::string not_open(const Job& job, const io::JobSpec& spec, double uptime_s) {
  if (!spec.elastic || job.opened() || job.finishing() || job.ending()) return "";
  return fmt::format("no worker has opened a kvstore yet (up {}): until one does, nothing joins",
                     duration_text(uptime_s));
}

std::string status_json(const StatusInput& in) {
  const Boundary& view = in.job.boundary();
  json out{{"job", in.spec.job},
           {"state", in.stopping ? "stopping" : std::string(in.job.phase())},
           {"elastic", in.spec.elastic},
           {"opaque", !in.job.opened()},
           {"term", in.term},
           {"generation", view.generation().value},
           {"epoch", nullptr},
           {"world_size", view.members().size()},
           {"min_workers", in.spec.rules.limits.least},
           {"max_workers", in.spec.rules.limits.most},
           {"uptime_s", in.uptime_s},
           {"supervisor_s", in.supervisor_s},
           {"waiting", in.job.pending_reason()},
           {"pulse", pulse_json(in)},
           {"not_open", in.stopping ? "" : not_open(in.job, in.spec, in.uptime_s)},
           {"goodput", nullptr},
           {"workers", workers_json(in)},
           {"servers", servers_json(in)},
           {"hosts", hosts_json(in)},
           {"checkpoint", checkpoint_json(in)},
           {"rolling_back", rolling_back_json(in.job)},
           {"gpus", gpus_json(in)},
           {"kept_out", kept_out_json(in)},
           {"log_lines", in.job.log_lines()},
           {"logs", io::job_files_dir(in.spec) + "/logs"},
           {"journal", {{"waits_s", in.journal_waits_s}, {"trouble", in.journal_trouble}}},
           {"volume", {{"stalled_s", in.volume_stalled_s}, {"dropped_bytes", in.volume_dropped}}}};
  if (view.epoch()) out["epoch"] = view.epoch()->value;
  if (const Goodput time = in.job.goodput(); time.share()) {
    json lost = json::object();
    for (const auto& [cause, d] : time.by_cause()) lost[cause] = seconds(d);
    out["goodput"] = {{"share", *time.share()},
                      {"worker_s", seconds(time.total())},
                      {"lost_s", std::move(lost)},
                      {"text", time.summary()}};
  }
  json accepted = json::array();
  for (const HostSlots& s : in.job.membership().file())
    for (std::uint32_t i = 0; i < s.slots; ++i) accepted.push_back(to_string(s.host));
  json kept = json::array();
  for (const Host& host : in.job.membership().refused_removals(in.job.membership().file()))
    kept.push_back(to_string(host));
  json beyond = json::array();
  for (const HostSlots& s : in.job.membership().beyond_limit())
    for (std::uint32_t i = 0; i < s.slots; ++i) beyond.push_back(to_string(s.host));
  json refused = nullptr;
  if (in.file_refusal) refused = {{"why", *in.file_refusal}};
  out["file"] = {{"path", in.spec.job_dir + "/host_worker"},
                 {"accepted", std::move(accepted)},
                 {"kept", std::move(kept)},
                 {"beyond_limit", std::move(beyond)},
                 {"refused", std::move(refused)}};
  // Names come from drivers: bytes that are not UTF-8 are replaced.
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace dt::supervisor
