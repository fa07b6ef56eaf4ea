#include "supervisor/control/job_status.h"

#include <algorithm>

#include "core/base/lookup.h"
#include "core/job/boundary.h"
#include "core/job/goodput.h"
#include "core/job/host_table.h"
#include "core/job/job.h"
#include "core/job/membership.h"
#include "core/job/notices.h"
#include "core/job/server_group.h"
#include "core/job/stragglers.h"
#include "core/protocol/gpu_health.h"
#include "io/job/status_fields.h"
#include "supervisor/control/job_figures.h"

namespace dt::supervisor {
namespace {

std::string_view name_of(HostState::Link link) {
  constexpr std::string_view kNames[] = {"none", "attaching", "up", "down"};
  return kNames[static_cast<std::size_t>(link)];
}

std::string_view name_of(Life life) {
  constexpr std::string_view kNames[] = {"alive", "alive", "suspect", "lost"};
  return kNames[static_cast<std::size_t>(life)];
}

/// An id's number.
template <class Id>
io::MaybeCount number_of(const std::optional<Id>& id) {
  return id ? io::MaybeCount(id->value) : std::nullopt;
}

io::MaybeNumber in_seconds(const std::optional<Duration>& time) {
  return time ? io::MaybeNumber(seconds(*time)) : std::nullopt;
}

/// How long ago that was, in seconds.
io::MaybeNumber age(const std::optional<Time>& then, Time now) {
  return then ? in_seconds(now - *then) : std::nullopt;
}

/// The numbers of the GPUs that a worker sees.
std::vector<std::uint64_t> gpus_of(const StatusInput& in, const Host& host, WorkerId worker) {
  for (const auto& [id, gpus] : value_in(in.hosts, host).gpus.workers)
    if (id == worker && in.reach(host).is_up) return {gpus.begin(), gpus.end()};
  return {};
}

io::GpuStatus gpu_status(const std::string& host, const GpuReport& gpu, const GpuHealth& all) {
  std::vector<std::uint64_t> workers;
  for (const auto& [id, gpus] : all.workers)
    if (std::ranges::find(gpus, gpu.index) != gpus.end()) workers.push_back(id.value);
  return {.host = host,
          .uuid = gpu.uuid,
          .name = gpu.name,
          .trouble = troubles_of(gpu),
          .workers = std::move(workers),
          .power_w = gpu.power_mw ? io::MaybeNumber(*gpu.power_mw / 1000.0) : std::nullopt,
          .index = gpu.index,
          .busy_percent = gpu.busy_percent,
          .memory_used = gpu.memory_used,
          .memory_total = gpu.memory_total,
          .temperature_c = gpu.temperature_c,
          .ecc_recent = gpu.ecc_recent,
          .ecc_ever = gpu.ecc_ever,
          .retired_pages = gpu.retired_pages,
          .remapped_rows = gpu.remapped_rows,
          .xid_errors = gpu.xid_errors,
          .last_xid = gpu.xid_errors > 0 ? io::MaybeCount(gpu.last_xid) : std::nullopt,
          .held_back = gpu.held_back};
}

std::vector<io::GpuStatus> gpus_status(const StatusInput& in) {
  std::vector<io::GpuStatus> out;
  for (const auto& [host, notes] : in.hosts) {
    if (!in.reach(host).is_up) continue;
    const GpuHealth& health = notes.gpus;
    for (const GpuReport& gpu : health.gpus)
      out.push_back(gpu_status(to_string(host), gpu, health));
    if (health.trouble.empty()) continue;
    out.emplace_back().host = to_string(host);
    out.back().trouble = {health.trouble};
  }
  return out;
}

io::PulseStatus pulse_status(const StatusInput& in, double uptime_s) {
  const JobFigures::Crossings& crossings = in.figures.crossings();
  return {.text = in.figures.line(in.job, in.figures_now, uptime_s),
          .epoch_s = in.figures.epoch_s(),
          .boundary_age_s = in.figures.boundary_age_s(in.figures_now),
          .checkpoint_age_s = in.figures.checkpoint_age_s(in.figures_now),
          .boundaries_s = seconds(crossings.all),
          .last_boundary_s =
              crossings.count > 0 ? io::MaybeNumber(seconds(crossings.last)) : std::nullopt,
          .restarts = in.job.hosts().worker_restarts(),
          .checkpoints = in.figures.checkpoints(),
          .boundaries = crossings.count};
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

std::optional<io::ProgressStatus> progress_of(const StatusInput& in, WorkerId id) {
  const ProcessId process{Role::kWorker, id.value};
  const auto* at = in.job.stragglers().hang_watch().position(id);
  const auto figures = in.figures.of(process).figures;
  if (!at && !figures) return std::nullopt;
  io::ProgressStatus out;
  if (at) {
    out.epoch = at->epoch.value;
    out.step = at->step;
    out.age_s = seconds(in.now - at->since);
  }
  if (figures) {
    if (figures->steps_in_epoch > 0) out.steps_in_epoch = figures->steps_in_epoch;
    out.samples_total = figures->samples;
    out.samples_per_s = in.figures.samples_per_s(process, in.figures_now);
  }
  return out;
}

io::WorkerStatus worker_status(const StatusInput& in, WorkerId id, const Worker& w,
                               bool leaves_next) {
  const ProcessId process{Role::kWorker, id.value};
  const ProcessNotes& notes = value_in(in.processes, process);
  const JobFigures::Process seen = in.figures.of(process);
  const Stragglers& stragglers = in.job.stragglers();
  io::WorkerStatus out;
  out.id = id.value;
  if (w.state == WorkerState::kMember) out.rank = number_of(in.job.boundary().rank_of(id));
  out.slot = w.slot;
  out.pid = notes.pid;
  out.resident_bytes = seen.resident;
  out.host = to_string(w.host);
  out.state = name(w.state);
  out.why = !w.why.empty()  ? w.why
            : leaves_next   ? "leaves at the next epoch"
            : notes.is_held ? "writes more output than the shared volume takes, and waits for it"
                            : why_not_yet(in, w);
  out.leaves_next = leaves_next;
  out.opened = w.opened;
  out.steps_per_s = seen.steps_per_s;
  out.output_age_s = age(seen.output_at, in.figures_now);
  out.progress = progress_of(in, id);
  out.gpus = gpus_of(in, w.host, id);
  if (seen.figures) {
    out.waited_s = static_cast<double>(seen.figures->waited_ns) / 1e9;
    for (const auto& [key, value] : seen.figures->values) out.values[key] = value;
    for (const auto& [key, text] : seen.figures->texts) out.texts[key] = text;
  }
  if (const Pace::Share* share = in.figures.pace().of(id)) {
    out.own_step_s = seconds(share->own);
    out.waits_share = share->waits;
  }
  if (const auto& slowest = in.figures.pace().slowest(); slowest && slowest->worker == id)
    out.slowest = slowest->text();
  const auto& stalls = stragglers.stalls();
  if (const auto s = stalls.find(id); s != stalls.end() && s->second.lasted > Duration{})
    out.stalls = {seconds(s->second.lasted), s->second.is_waited_for, s->second.process};
  if (shows_standstill(stragglers) && in.job.boundary().contributes(id))
    out.waits = {seconds(*stragglers.standstill().lasted()), stragglers.standstill().wait_of(id)};
  return out;
}

std::optional<io::StandstillStatus> standstill_of(const StatusInput& in) {
  const Stragglers& stragglers = in.job.stragglers();
  if (!shows_standstill(stragglers)) return std::nullopt;
  const Duration lasted = *stragglers.standstill().lasted();
  const Duration limit = in.spec.rules.hang_timeout;
  io::StandstillStatus out{seconds(lasted), std::nullopt, stragglers.standstill().text()};
  if (limit > Duration{}) out.ends_in_s = seconds(limit - lasted);
  return out;
}

std::vector<io::WorkerStatus> workers_status(const StatusInput& in) {
  std::vector<io::WorkerStatus> out;
  const std::vector<WorkerId> leaves =
      in.job.membership().plan(in.job.boundary().contributors(), in.now).leaves;
  for (const auto& [id, w] : in.job.membership().workers()) {
    if (w.state == WorkerState::kGone) continue;
    const bool leaves_next = std::ranges::find(leaves, id) != leaves.end();
    out.push_back(worker_status(in, id, w, leaves_next));
  }
  return out;
}

std::vector<io::ServerStatus> servers_status(const StatusInput& in) {
  std::vector<io::ServerStatus> out;
  for (const auto& [id, s] : in.job.servers().all()) {
    const ProcessNotes& notes = value_in(in.processes, {Role::kServer, id.value});
    const ServerWatch& watch = in.job.servers().watch();
    const auto silence = watch.silence(id);
    const JobFigures::Process seen = in.figures.of({Role::kServer, id.value});
    out.push_back({.id = id.value,
                   .port = s.port,
                   .pid = notes.pid,
                   .resident_bytes = seen.resident,
                   .in_place = seen.in_place,
                   .host = to_string(s.host),
                   .state = s.address.empty() ? "starting"
                            : silence         ? "silent"
                                              : "listening",
                   .process = watch.process(id),
                   .address = s.address,
                   .device = notes.device,
                   .device_note = notes.device_note,
                   .silent_s = in_seconds(silence)});
  }
  return out;
}

/// Workers of the host in host_worker beyond --max-workers.
std::uint32_t beyond_limit(const StatusInput& in, const Host& host) {
  for (const HostSlots& s : in.job.membership().beyond_limit())
    if (s.host == host) return s.slots;
  return 0;
}

/// A host goes away, or with `host` null all of them: why, when, and what becomes of workers and
/// servers. None if there is no notice.
std::optional<io::LeavingStatus> leaving_of(const StatusInput& in, const Notices::Notice* notice,
                                            const Host* host = nullptr) {
  if (!notice) return std::nullopt;
  const Notices& notices = in.job.notices();
  return io::LeavingStatus{notice->why, host ? notices.outlook(*host) : notices.outlook(),
                           in_seconds(notices.left(*notice))};
}

std::vector<io::HostStatus> hosts_status(const StatusInput& in) {
  std::vector<io::HostStatus> out;
  const Membership& membership = in.job.membership();
  const auto add_host = [&](const Host& host) -> io::HostStatus& {
    io::HostStatus& entry = out.emplace_back();
    entry.host = to_string(host);
    entry.link = "none";
    entry.life = "alive";
    entry.wanted = membership.wanted(host);
    entry.beyond_limit = beyond_limit(in, host);
    return entry;
  };
  const auto is_known = [&in](const Host& host) { return in.job.hosts().all().contains(host); };
  // Hosts that the job has nothing to do with yet.
  for (const HostSlots& s : membership.beyond_limit())
    if (!is_known(s.host) && membership.wanted(s.host) == 0) add_host(s.host);
  for (const Host& host : membership.hosts())
    if (!is_known(host) && membership.wanted(host) > 0) add_host(host);
  for (const auto& [host, h] : in.job.hosts().all()) {
    const std::uint32_t empty = membership.empty_places(host);
    const auto& leaving = in.job.notices().of_hosts();
    const auto notice = leaving.find(host);
    if (h.link == HostState::Link::kNone && notice == leaving.end() &&
        membership.wanted(host) + beyond_limit(in, host) + empty == 0)
      continue;
    const Host& given = in.job.hosts().as_given(host);
    io::HostStatus& entry = add_host(host);
    entry.link = name_of(h.link);
    entry.life = name_of(in.job.hosts().liveness().life(host, std::nullopt, in.now));
    entry.why = h.why;
    entry.last_death = h.last_death;
    entry.check = h.check;
    if (given.via) entry.via = to_text(*given.via);
    if (!given.gpus.empty()) entry.gpus = given.gpus;
    if (h.check == "reach") entry.reach_command = in.reach(host).command;
    entry.empty_places = empty;
    entry.attempts = h.attempts;
    entry.restarts = h.restarts.count();
    entry.prepared = h.prepared;
    entry.given_up = h.given_up;
    if (h.cooling_until && *h.cooling_until > in.now)
      entry.cooling_until_s = seconds(*h.cooling_until - in.now);
    if (notice != leaving.end()) entry.leaving = leaving_of(in, &notice->second, &host);
  }
  return out;
}

io::CheckpointStatus checkpoint_status(const StatusInput& in) {
  const Checkpoints& checkpoints = in.job.checkpoints();
  return {.every = in.spec.rules.checkpoint_every,
          .newest = number_of(checkpoints.newest()),
          .bytes = checkpoints.bytes() > 0 ? io::MaybeCount(checkpoints.bytes()) : std::nullopt,
          .writing = number_of(checkpoints.saving()),
          .interval_s = seconds(in.spec.rules.checkpoint_interval),
          .none_because = checkpoints.no_checkpoints(in.job.servers().hosts()),
          .trouble = checkpoints.trouble()};
}

std::vector<io::KeptOutStatus> kept_out_status(const StatusInput& in) {
  std::vector<io::KeptOutStatus> out;
  const auto tell = [&out](const std::string& by, const KeptOut& what) {
    if (what != KeptOut{}) out.push_back({by, what.refused, what.dropped, what.fenced});
  };
  for (const auto& [process, notes] : in.processes) tell(to_string(process), notes.kept_out);
  for (const auto& [host, notes] : in.hosts) tell("agent of " + to_string(host), notes.kept_out);
  tell("control socket", in.kept_out);
  return out;
}

std::optional<io::BalanceStatus> balance_of(const StatusInput& in) {
  const Pace& pace = in.figures.pace();
  if (!pace.balance()) return std::nullopt;
  std::string text = fmt::format("{:.0f} %", *pace.balance() * 100);
  const Worker* slow = pace.slowest() ? in.job.membership().find(pace.slowest()->worker) : nullptr;
  if (slow)
    text += fmt::format(" (worker {} on {} keeps {} waiting)", pace.slowest()->worker, slow->host,
                        in.job.boundary().contributors().size() - 1);
  return io::BalanceStatus{*pace.balance(), std::move(text)};
}

std::optional<io::GoodputStatus> goodput_of(const Goodput& time) {
  if (!time.share()) return std::nullopt;
  io::GoodputStatus out{*time.share(), seconds(time.total()), {}, time.summary()};
  for (const char* cause : kLossCauses) out.lost_s[cause] = 0.0;
  for (const auto& [cause, d] : time.by_cause()) out.lost_s[cause] = seconds(d);
  return out;
}

/// The lines of a host_worker.
std::vector<std::string> lines_of(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> out;
  for (const HostSlots& s : hosts) out.insert(out.end(), s.slots, to_string(s.host));
  return out;
}

io::FileStatus file_status(const StatusInput& in) {
  const Membership& membership = in.job.membership();
  io::FileStatus out{.path = in.spec.job_dir + "/host_worker",
                     .accepted = lines_of(membership.file()),
                     .base = {},
                     .kept = {},
                     .beyond_limit = lines_of(membership.beyond_limit()),
                     .refused = {}};
  const auto master = io::host_here(in.spec);
  for (const Host& host : membership.base_hosts()) {
    const Host* heir = find_in(membership.heirs(), host);
    out.base.push_back(to_string(host) +
                       (host == master ? " (the master's)"
                        : heir         ? fmt::format(" (until {} is ready to replace it)", *heir)
                                       : ""));
  }
  for (const Host& host : membership.refused_removals(membership.file()))
    out.kept.push_back(to_string(host));
  if (in.file_refusal) out.refused = io::RefusedStatus{*in.file_refusal};
  return out;
}

}  // namespace

std::string not_open(const Job& job, const io::JobSpec& spec, double uptime_s) {
  if (spec.rules.on_change == OnChange::kRestart) return "";
  if (!spec.elastic || job.opened() || job.finishing() || job.ending()) return "";
  return fmt::format("no worker has opened a kvstore yet (up {}): until one does, nothing joins",
                     duration_text(uptime_s));
}

std::string status_json(const StatusInput& in, io::Status out) {
  const Boundary& view = in.job.boundary();
  const JobRules& rules = in.spec.rules;
  const double uptime_s = out.uptime_s.value_or(0);
  out.job = in.spec.job;
  out.state = in.stopping ? "stopping" : std::string(in.job.phase());
  out.on_change = rules.on_change == OnChange::kRestart ? "restart" : "refuse";
  out.waiting = in.job.pending_reason();
  if (!in.stopping) out.not_open = not_open(in.job, in.spec, uptime_s);
  out.logs = io::job_files_dir(in.spec) + "/logs";
  out.elastic = in.spec.elastic;
  out.opaque = !in.job.opened();
  out.generation = view.generation().value;
  out.epoch = number_of(view.epoch());
  out.world_size = view.members().size();
  out.group_restarts = in.job.group_restarts();
  out.min_workers = rules.limits.least;
  out.max_workers = rules.limits.most;
  out.log_lines = in.job.log_lines();
  out.pulse = pulse_status(in, uptime_s);
  out.standstill = standstill_of(in);
  out.goodput = goodput_of(in.job.goodput());
  out.balance = balance_of(in);
  out.leaving = leaving_of(in, in.job.notices().of_job());
  if (const auto& epoch = view.returns_to())
    out.rolling_back = {epoch->value, in.job.servers().why()};
  out.workers = workers_status(in);
  out.servers = servers_status(in);
  out.hosts = hosts_status(in);
  out.gpus = gpus_status(in);
  out.kept_out = kept_out_status(in);
  out.checkpoint = checkpoint_status(in);
  out.file = file_status(in);
  return io::to_json(out);
}

}  // namespace dt::supervisor
