#include "supervisor/dtctl/metrics_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "io/line_prefixer.h"
#include "supervisor/dtctl/status_items.h"

namespace dt::supervisor {
namespace {

using nlohmann::json;
using Labels = std::vector<std::pair<std::string, std::string>>;

const json& item(const json& object, std::string_view key) {
  static const json kNothing;
  const auto found = object.find(key);
  return found == object.end() ? kNothing : *found;
}

/// The value at "pulse/epoch_s"; null if there is none.
const json& value_at(const json& object, std::string_view path) {
  const json* value = &object;
  for (;;) {
    const std::size_t slash = path.find('/');
    value = &item(*value, path.substr(0, slash));
    if (slash == std::string_view::npos) return *value;
    path.remove_prefix(slash + 1);
  }
}

std::string text_at(const json& object, const char* key) {
  const json& value = item(object, key);
  return value.is_null() ? "" : text_of(value);
}

std::string lower(std::string word) {
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

std::string in_quotes(const std::string& value) {
  std::string out = "\"";
  // No terminal obeys what stands here, and no line ends before its end.
  for (const char c : io::printable(value)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

/// Collects families, each with its HELP and TYPE before its samples.
class Metrics {
 public:
  explicit Metrics(std::string job) : job_(std::move(job)) {}

  /// The samples that follow are of this metric. Without a sample nothing is written of it.
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = fmt::format("dtlaunch_{}", name);
    head_ = fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name_, type, help);
  }
  void sample(double value, const Labels& labels = {}, std::string_view suffix = "") {
    out_ += std::exchange(head_, "");
    out_ += fmt::format("{}{}{{job_id={}", name_, suffix, in_quotes(job_));
    for (const auto& [label, text] : labels) out_ += fmt::format(",{}={}", label, in_quotes(text));
    out_ += fmt::format("}} {}\n", number_text(value));
  }
  /// The number or the truth of `value`, times `scale`; no sample of anything else.
  void sample(const json& value, const Labels& labels = {}, double scale = 1) {
    if (value.is_number()) sample(value.get<double>() * scale, labels);
    if (value.is_boolean()) sample(value.get<bool>() ? 1 : 0, labels);
  }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  std::string job_;
  std::string name_;
  std::string head_;
  std::string out_;
};

/// A metric that is one field of an object.
struct Field {
  const char* path;
  const char* name;
  const char* type;
  const char* help;
  double scale = 1;
};

constexpr Field kJobFields[] = {
    {"uptime_s", "uptime_seconds", "gauge", "Time since the job began."},
    {"supervisor_s", "supervisor_uptime_seconds", "gauge", "Time since the supervisor began."},
    {"term", "supervisor_term", "gauge", "Number of the supervisor's process, from 1."},
    {"epoch", "epoch", "gauge", "The present epoch."},
    {"generation", "generation", "gauge", "Number of the view."},
    {"world_size", "world_size", "gauge", "Workers in the view."},
    {"pulse/epoch_s", "epoch_duration_seconds", "gauge", "Mean duration of the last epochs."},
    {"pulse/boundary_age_s", "boundary_age_seconds", "gauge", "Time since the last boundary."},
    {"pulse/last_boundary_s", "last_boundary_duration_seconds", "gauge",
     "The last boundary, from its first arrival to its last release."},
    {"pulse/restarts", "worker_restarts_total", "counter", "Restarts after workers' deaths."},
    {"group_restarts", "group_restarts_total", "counter", "Restarts of all workers as a group."},
    {"pulse/checkpoints", "checkpoints_total", "counter", "Checkpoints that were completed."},
    {"checkpoint/newest", "checkpoint_epoch", "gauge", "Epoch of the newest checkpoint."},
    {"checkpoint/bytes", "checkpoint_size_bytes", "gauge", "Size of the newest checkpoint."},
    {"pulse/checkpoint_age_s", "checkpoint_age_seconds", "gauge",
     "Time since the newest checkpoint was completed."},
    {"goodput/share", "goodput_ratio", "gauge", "Share of the members' time that was not lost."},
    {"goodput/worker_s", "worker_seconds_total", "counter", "The members' time."},
    {"journal/waits_s", "journal_wait_seconds", "gauge",
     "For how long nothing is decided because the journal's disk has no room."},
    {"volume/stalled_s", "volume_stall_seconds", "gauge",
     "For how long the shared volume has not answered."},
    {"volume/queue_length", "volume_queue_requests", "gauge",
     "Requests and output that wait for the shared volume."},
    {"volume/queue_bytes", "volume_queue_bytes", "gauge",
     "Bytes of output that wait for the shared volume."},
    {"volume/queue_age_s", "volume_queue_age_seconds", "gauge",
     "For how long the oldest of them has waited."},
    {"volume/dropped_bytes", "volume_dropped_bytes_total", "counter",
     "Bytes of output that the shared volume could not take."},
};

constexpr Field kWorkerFields[] = {
    {"progress/epoch", "worker_epoch", "gauge", "The worker's epoch."},
    {"progress/step", "worker_step", "gauge", "The worker's step."},
    {"progress/samples_total", "worker_samples_total", "counter", "Samples the worker has pushed."},
    {"progress/samples_per_s", "worker_samples_per_second", "gauge", "Samples a second, lately."},
    {"steps_per_s", "worker_steps_per_second", "gauge", "Steps a second, lately."},
    {"resident_bytes", "worker_resident_bytes", "gauge",
     "Resident memory of the worker and its children."},
    {"output_age_s", "worker_output_age_seconds", "gauge", "Time since its last output."},
    {"own_step_s", "worker_own_step_seconds", "gauge", "The worker's own work for a step, lately."},
    {"waited_s", "worker_waited_seconds_total", "counter",
     "How long the worker's calls of the store have blocked."},
    {"stalls/for_s", "worker_stall_seconds", "gauge", "For how long the worker has done nothing."},
};

constexpr Field kServerFields[] = {
    {"resident_bytes", "server_resident_bytes", "gauge", "Resident memory of the server."},
    {"silent_s", "server_silence_seconds", "gauge", "Time since the server's last report."},
};

constexpr Field kGpuFields[] = {
    {"busy_percent", "gpu_busy_ratio", "gauge", "How busy the GPU is.", 0.01},
    {"memory_used", "gpu_memory_used_bytes", "gauge", "The GPU's memory in use."},
    {"memory_total", "gpu_memory_size_bytes", "gauge", "The GPU's memory."},
    {"temperature_c", "gpu_temperature_celsius", "gauge", "The GPU's temperature."},
    {"power_w", "gpu_power_watts", "gauge", "The GPU's power."},
    {"xid_errors", "gpu_xid_errors_total", "counter", "Errors of the driver since the job began."},
};

constexpr Field kKeptOutFields[] = {
    {"refused", "refused_connections_total", "counter", "Connections of strangers."},
    {"dropped", "dropped_connections_total", "counter",
     "Connections that ended because a frame was invalid."},
    {"fenced", "fenced_requests_total", "counter", "Requests of workers that are no members."},
};

/// Each field as a metric, with a sample of each object; `labels_of` has the objects' labels.
void add(Metrics& out, std::span<const Field> fields, const std::vector<json>& objects,
         Labels (*labels_of)(const json& object)) {
  for (const Field& field : fields) {
    out.family(field.name, field.type, field.help);
    for (const json& object : objects)
      out.sample(value_at(object, field.path), labels_of(object), field.scale);
  }
}

/// How many of `objects` are in each state; states that none is in have a 0.
void add_states(Metrics& out, const std::vector<json>& objects, const char* key,
                std::initializer_list<const char*> known) {
  std::map<std::string, double> count;
  for (const char* state : known) count[state] = 0;
  for (const json& object : objects)
    if (const std::string state = lower(text_at(object, key)); !state.empty()) ++count[state];
  for (const auto& [state, n] : count) out.sample(n, {{key, state}});
}

void add_job(Metrics& out, const json& status) {
  out.family("job_state", "gauge", "1 for the state that the job is in.");
  const std::string present = text_at(status, "state");
  for (const char* state : {"starting", "running", "finishing", "stopping", "ended"})
    out.sample(present == state ? 1 : 0, {{"state", state}});
  add(out, kJobFields, {status}, [](const json&) { return Labels(); });

  out.family("boundary_duration_seconds", "summary",
             "Boundaries between epochs, each from its first arrival to its last release.");
  if (const json& pulse = item(status, "pulse"); item(pulse, "boundaries").is_number()) {
    out.sample(number(pulse, "boundaries_s"), {}, "_sum");
    out.sample(number(pulse, "boundaries"), {}, "_count");
  }
  out.family("lost_worker_seconds_total", "counter",
             "The members' time that was lost, by its cause.");
  if (const json& lost = value_at(status, "goodput/lost_s"); lost.is_object())
    for (const auto& [cause, time] : lost.items()) out.sample(time, {{"cause", cause}});
  out.family("rolling_back", "gauge", "1 while the job goes back to a checkpoint.");
  if (status.contains("rolling_back"))
    out.sample(item(status, "rolling_back").is_object() ? 1 : 0, Labels());
  out.family("host_worker_refused", "gauge", "1 while the content of host_worker is refused.");
  if (const json& file = item(status, "file"); file.is_object())
    out.sample(item(file, "refused").is_object() ? 1 : 0, Labels());
}

void add_workers(Metrics& out, const json& status) {
  const auto workers = items(status, "workers");
  out.family("workers", "gauge", "Workers by their state.");
  add_states(out, workers, "state",
             {"seen", "preparing", "starting", "warm", "member", "leaving", "stopping"});
  out.family("step", "gauge", "The largest step of the members.");
  double step = -1;
  double rate = -1;
  for (const json& w : workers) {
    if (const json& its = value_at(w, "progress/step");
        text_at(w, "state") == "MEMBER" && its.is_number())
      step = std::max(step, its.get<double>());
    if (const json& its = value_at(w, "progress/samples_per_s"); its.is_number())
      rate = std::max(rate, 0.0) + its.get<double>();
  }
  if (step >= 0) out.sample(step);
  out.family("samples_per_second", "gauge", "Samples a second of all workers, lately.");
  if (rate >= 0) out.sample(rate);

  const auto labels = [](const json& w) {
    return Labels{{"worker", text_at(w, "id")}, {"host", text_at(w, "host")}};
  };
  out.family("worker_info", "gauge", "Always 1: the worker's rank and state.");
  for (const json& w : workers) {
    Labels all = labels(w);
    all.emplace_back("rank", text_at(w, "rank"));
    all.emplace_back("state", lower(text_at(w, "state")));
    out.sample(1, all);
  }
  add(out, kWorkerFields, workers, labels);
  out.family("worker_value", "gauge", "What the worker's program reports, by name.");
  for (const json& w : workers)
    if (const json& values = item(w, "values"); values.is_object())
      for (const auto& [name, value] : values.items()) {
        Labels all = labels(w);
        all.emplace_back("name", name);
        out.sample(value, all);
      }
}

void add_others(Metrics& out, const json& status) {
  const auto servers = items(status, "servers");
  out.family("servers", "gauge", "Servers by their state.");
  add_states(out, servers, "state", {"starting", "listening", "silent"});
  add(out, kServerFields, servers, [](const json& s) {
    return Labels{{"server", text_at(s, "id")}, {"host", text_at(s, "host")}};
  });

  const auto hosts = items(status, "hosts");
  out.family("hosts", "gauge", "Hosts by their sign of life.");
  add_states(out, hosts, "life", {"alive", "suspect", "lost"});
  out.family("hosts_given_up", "gauge", "Hosts that have used up their restarts.");
  out.sample(static_cast<double>(std::count_if(
      hosts.begin(), hosts.end(), [](const json& h) { return item(h, "given_up") == true; })));

  std::vector<json> gpus = items(status, "gpus");
  std::erase_if(gpus, [](const json& g) { return !item(g, "index").is_number(); });
  add(out, kGpuFields, gpus, [](const json& g) {
    return Labels{
        {"host", text_at(g, "host")}, {"gpu", text_at(g, "index")}, {"uuid", text_at(g, "uuid")}};
  });
  add(out, kKeptOutFields, items(status, "kept_out"), [](const json& k) {
    return Labels{{"by", text_at(k, "by")}};
  });
}

}  // namespace

Result<std::string> metrics_text(std::string_view json_text) {
  const json status = json::parse(json_text, nullptr, false);
  if (!status.is_object()) return fail(ErrorKind::kProtocol, "the supervisor's status is no JSON");
  Metrics out(text_at(status, "job"));
  add_job(out, status);
  add_workers(out, status);
  add_others(out, status);
  return out.take();
}

}  // namespace dt::supervisor
