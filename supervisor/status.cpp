#include "supervisor/status.h"

#include <nlohmann/json.hpp>

namespace dt::supervisor {
namespace {

using nlohmann::json;

std::string_view name_of(Job::Link link) {
  switch (link) {
    case Job::Link::kNone:
      return "none";
    case Job::Link::kAttaching:
      return "attaching";
    case Job::Link::kUp:
      return "up";
    case Job::Link::kDown:
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

json workers_json(const StatusInput& in) {
  json out = json::array();
  const auto since = [&in](Time then) {
    return std::chrono::duration<double>(in.now - then).count();
  };
  for (const auto& [id, w] : in.job.membership().workers()) {
    if (w.state == WorkerState::kGone) continue;
    json entry{{"id", id.value},         {"rank", nullptr},    {"host", to_string(w.host)},
               {"state", name(w.state)}, {"why", w.why},       {"pid", 0},
               {"stalls", nullptr},      {"opened", w.opened}, {"progress", nullptr}};
    if (w.state == WorkerState::kMember) {
      if (const auto rank = in.job.boundary().rank_of(id)) entry["rank"] = rank->value;
    }
    if (const auto p = in.processes.find({Role::kWorker, id.value}); p != in.processes.end()) {
      entry["pid"] = p->second.pid;
    }
    if (const auto at = in.job.hang_watch().position(id))
      entry["progress"] = {
          {"epoch", at->epoch.value}, {"step", at->step}, {"age_s", since(at->since)}};
    if (const auto s = in.job.stalls().find(id); s != in.job.stalls().end())
      entry["stalls"] = {{"for_s", since(s->second.since)},
                         {"waited_for", in.job.hang_watch().stalling().count(id) > 0},
                         {"process", s->second.process}};
    out.push_back(std::move(entry));
  }
  return out;
}

json servers_json(const StatusInput& in) {
  json out = json::array();
  for (const auto& [id, s] : in.job.servers()) {
    const auto p = in.processes.find({Role::kServer, id.value});
    out.push_back({{"id", id.value},
                   {"host", to_string(s.host)},
                   {"state", s.address.empty() ? "starting" : "listening"},
                   {"address", s.address},
                   {"port", s.port},
                   {"pid", p == in.processes.end() ? 0 : p->second.pid}});
  }
  return out;
}

/// Workers of the host that host_worker asks for beyond --max-workers.
std::uint32_t beyond_limit(const StatusInput& in, const Host& host) {
  for (const HostSlots& s : in.job.membership().beyond_limit())
    if (s.host == host) return s.slots;
  return 0;
}

json hosts_json(const StatusInput& in) {
  json out = json::array();
  // Hosts that the job has nothing to do with yet.
  for (const HostSlots& s : in.job.membership().beyond_limit())
    if (in.job.hosts().count(s.host) == 0)
      out.push_back({{"host", to_string(s.host)},
                     {"wanted", 0},
                     {"beyond_limit", s.slots},
                     {"link", "none"},
                     {"life", "alive"}});
  for (const auto& [host, h] : in.job.hosts()) {
    const std::uint32_t wanted = in.job.membership().wanted(host);
    const std::uint32_t beyond = beyond_limit(in, host);
    if (wanted == 0 && beyond == 0 && h.link == Job::Link::kNone) continue;
    json entry{{"host", to_string(host)},
               {"wanted", wanted},
               {"beyond_limit", beyond},
               {"link", name_of(h.link)},
               {"life", name_of(in.job.life(host, in.now))},
               {"prepared", h.prepared},
               {"cooling_until_s", nullptr},
               {"given_up", h.given_up},
               {"why", h.why},
               {"check", h.check},
               {"attempts", h.attempts},
               {"restarts", h.restarts.count()}};
    if (h.cooling_until && *h.cooling_until > in.now)
      entry["cooling_until_s"] = std::chrono::duration<double>(*h.cooling_until - in.now).count();
    out.push_back(std::move(entry));
  }
  return out;
}

json checkpoint_json(const StatusInput& in) {
  const Checkpoints& checkpoints = in.job.checkpoints();
  json out{{"every", in.spec.checkpoint_every},
           {"newest", nullptr},
           {"writing", nullptr},
           {"trouble", in.job.checkpoint_trouble()}};
  if (checkpoints.newest()) out["newest"] = checkpoints.newest()->value;
  if (checkpoints.saving()) out["writing"] = checkpoints.saving()->epoch.value;
  return out;
}

/// The job is going back to a checkpoint: to which epoch, and why.
json rolling_back_json(const Job& job) {
  const auto& epoch = job.boundary().returns_to();
  if (!epoch) return nullptr;
  return {{"to_epoch", epoch->value}, {"why", job.servers_why()}};
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
           {"min_workers", in.spec.min_workers},
           {"max_workers", in.spec.max_workers},
           {"uptime_s", in.uptime_s},
           {"waiting", in.job.pending_reason()},
           {"goodput", nullptr},
           {"workers", workers_json(in)},
           {"servers", servers_json(in)},
           {"hosts", hosts_json(in)},
           {"checkpoint", checkpoint_json(in)},
           {"rolling_back", rolling_back_json(in.job)},
           {"kept_out", kept_out_json(in)},
           {"log_lines", in.job.log_lines()},
           {"logs", io::job_files_dir(in.spec) + "/logs"},
           {"volume", {{"stalled_s", in.volume_stalled_s}, {"dropped_bytes", in.volume_dropped}}}};
  if (view.epoch()) out["epoch"] = view.epoch()->value;
  if (const LostTime& time = in.job.lost_time(); time.goodput()) {
    const auto in_seconds = [](Duration d) { return std::chrono::duration<double>(d).count(); };
    json lost = json::object();
    for (const auto& [cause, d] : time.by_cause()) lost[cause] = in_seconds(d);
    out["goodput"] = {{"share", *time.goodput()},
                      {"worker_s", in_seconds(time.total())},
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
  return out.dump();
}

}  // namespace dt::supervisor
