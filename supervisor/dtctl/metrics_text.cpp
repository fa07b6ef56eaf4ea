#include "supervisor/dtctl/metrics_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/case_conv.hpp>
#include <cmath>
#include <initializer_list>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "io/job/status_fields.h"
#include "io/line_prefixer.h"

namespace dt::supervisor {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const io::MaybeCount& number) {
  return number ? fmt::format("{}", *number) : "";
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
    auto at = std::ranges::find(families_, name_, &Family::first);
    if (at == families_.end()) at = families_.insert(at, {name_, head_});
    at->second += fmt::format("{}{}{{job_id={}", name_, suffix, in_quotes(job_));
    for (const auto& [label, text] : labels)
      at->second += fmt::format(",{}={}", label, in_quotes(text));
    at->second += fmt::format("}} {}\n", number_text(value));
  }
  /// Samples of the fields of `object`, and of the objects in it, that are metrics.
  template <class T>
  void fields(const T& object, const Labels& labels = {}) {
    io::for_each_field<T>([&](const auto& row) { field(row, object.*row.member, labels); });
  }
  [[nodiscard]] std::string take() {
    std::string out;
    for (const auto& [name, text] : families_) out += text;
    return out;
  }

 private:
  template <class Value>
  void field(const auto& row, const Value& value, const Labels& labels) {
    if constexpr (std::is_aggregate_v<Value>) {
      fields(value, labels);
    } else if constexpr (requires { value.has_value(); }) {
      if (value) field(row, *value, labels);
    } else if constexpr (std::is_arithmetic_v<Value>) {
      if (!row.metric) return;
      const bool is_counter = std::string_view(row.metric).ends_with("_total");
      family(row.metric, is_counter ? "counter" : "gauge", row.text);
      sample(static_cast<double>(value) * row.scale, labels);
    }
  }

  using Family = std::pair<std::string, std::string>;  ///< Name and text.
  std::string job_;
  std::string name_;
  std::string head_;
  std::vector<Family> families_;
};

/// How many of `objects` are in each state; states that none is in have a 0.
template <class T>
void add_states(Metrics& out, const std::vector<T>& objects, const char* label,
                std::string T::*state, std::initializer_list<const char*> known) {
  std::map<std::string, double> count;
  for (const char* one : known) count[one] = 0;
  for (const T& object : objects)
    if (!(object.*state).empty()) ++count[boost::to_lower_copy(object.*state)];
  for (const auto& [one, n] : count) out.sample(n, {{label, one}});
}

void add_job(Metrics& out, const io::Status& status) {
  out.family("job_state", "gauge", "1 for the state that the job is in.");
  for (const char* state : {"starting", "running", "finishing", "stopping", "ended"})
    out.sample(status.state == state ? 1 : 0, {{"state", state}});
  out.fields(status);

  out.family("boundary_duration_seconds", "summary",
             "Boundaries between epochs, each from its first arrival to its last release.");
  if (status.pulse.boundaries) {
    out.sample(status.pulse.boundaries_s.value_or(0), {}, "_sum");
    out.sample(static_cast<double>(*status.pulse.boundaries), {}, "_count");
  }
  out.family("lost_worker_seconds_total", "counter",
             "The members' time that was lost, by its cause.");
  if (status.goodput)
    for (const auto& [cause, time] : status.goodput->lost_s) out.sample(time, {{"cause", cause}});
  out.family("rolling_back", "gauge", "1 while the job goes back to a checkpoint.");
  out.sample(status.rolling_back ? 1 : 0);
  out.family("host_worker_refused", "gauge", "1 while the content of host_worker is refused.");
  out.sample(status.file.refused ? 1 : 0);
}

void add_workers(Metrics& out, const std::vector<io::WorkerStatus>& workers) {
  out.family("workers", "gauge", "Workers by their state.");
  add_states(out, workers, "state", &io::WorkerStatus::state,
             {"seen", "preparing", "starting", "warm", "member", "leaving", "stopping"});
  out.family("step", "gauge", "The largest step of the members.");
  io::MaybeCount step;
  io::MaybeNumber rate;
  for (const io::WorkerStatus& w : workers) {
    if (!w.progress) continue;
    if (w.state == "MEMBER") step = std::max(step, w.progress->step);
    if (w.progress->samples_per_s) rate = rate.value_or(0) + *w.progress->samples_per_s;
  }
  if (step) out.sample(static_cast<double>(*step));
  out.family("samples_per_second", "gauge", "Samples a second of all workers, lately.");
  if (rate) out.sample(*rate);

  for (const io::WorkerStatus& w : workers) {
    Labels labels{{"worker", text_of(w.id)}, {"host", w.host}};
    out.fields(w, labels);
    out.family("worker_value", "gauge", "What the worker's program reports, by name.");
    labels.emplace_back();
    for (const auto& [name, value] : w.values) {
      labels.back() = {"name", name};
      out.sample(value, labels);
    }
    out.family("worker_info", "gauge", "Always 1: the worker's rank and state.");
    labels.back() = {"rank", text_of(w.rank)};
    labels.emplace_back("state", boost::to_lower_copy(w.state));
    out.sample(1, labels);
  }
}

void add_others(Metrics& out, const io::Status& status) {
  out.family("servers", "gauge", "Servers by their state.");
  add_states(out, status.servers, "state", &io::ServerStatus::state,
             {"starting", "listening", "silent"});
  for (const io::ServerStatus& s : status.servers)
    out.fields(s, {{"server", text_of(s.id)}, {"host", s.host}});

  out.family("hosts", "gauge", "Hosts by their sign of life.");
  add_states(out, status.hosts, "life", &io::HostStatus::life, {"alive", "suspect", "lost"});
  out.family("hosts_given_up", "gauge", "Hosts that have used up their restarts.");
  out.sample(
      static_cast<double>(std::ranges::count(status.hosts, true, &io::HostStatus::given_up)));

  for (const io::GpuStatus& g : status.gpus)
    if (g.index) out.fields(g, {{"host", g.host}, {"gpu", text_of(g.index)}, {"uuid", g.uuid}});
  for (const io::KeptOutStatus& k : status.kept_out) out.fields(k, {{"by", k.by}});
}

}  // namespace

Result<std::string> metrics_text(std::string_view json_text) {
  const auto status = io::status_from(json_text);
  if (!status) return tl::unexpected(status.error());
  Metrics out(status->job);
  add_job(out, *status);
  add_workers(out, status->workers);
  add_others(out, *status);
  return out.take();
}

}  // namespace dt::supervisor
