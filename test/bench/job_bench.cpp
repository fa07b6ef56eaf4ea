/// What one event costs the job machine (core/job), by kind and by number of hosts. The last column
/// is the cost beside that of a job of 16 hosts in the same run: 1 means that the number of hosts
/// does not matter.
///
///     job_bench [--hosts N] [--servers N] [--failed-tries N]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/time.h"
#include "core/job/job.h"
#include "core/job/membership.h"

namespace {

using namespace dt;

constexpr std::size_t kFewHosts = 16;
constexpr double kStep = 1e-4;  // seconds of the job's time between two events

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// A training job of one worker a host, with events like those of its supervisor.
class Bench {
 public:
  Bench(std::size_t hosts, std::size_t servers)
      : hosts_(hosts_named(hosts)), servers_(std::min(hosts, servers)), job_(options(), {}, now()) {
    for (std::size_t i = 0; i < hosts; ++i) {
      all_.push_back(worker(i));
      (i % 2 == 0 ? even_ : odd_).push_back(worker(i));
    }
    (void)job_.begin(Term(1), now());
  }

  /// The mean CPU time of `count` events, in microseconds, under the row's name.
  void measure(const std::string& row, std::size_t count,
               const std::function<JobEvent(std::size_t)>& event) {
    std::vector<JobEvent> events;
    for (std::size_t i = 0; i < count; ++i) events.push_back(event(i));
    const double begin = cpu_seconds();
    for (const auto& one : events) step(one);
    rows[row] = (cpu_seconds() - begin) / static_cast<double>(count) * 1e6;
    order.push_back(row);
  }

  void start() {
    const std::size_t n = hosts_.size();
    measure("AgentAttached (start)", n, [&](std::size_t i) {
      return AgentAttached{hosts_[i], "boot", i + 1, {}};
    });
    measure("ServerReady (start)", servers_, [](std::size_t i) {
      return FromServer<ServerReady>{server(i), {"10.0.0.1", 9000, "cpu", ""}};
    });
    measure("OpenedKvStore (start)", n, [](std::size_t i) {
      return FromWorker<OpenedKvStore>{worker(i), {"dist_sync"}};
    });
    arrive("Arrive (start)", 0, true);
  }

  void train() {
    const std::size_t n = hosts_.size();
    constexpr std::size_t kTimes = 1000;
    measure("Tick", kTimes, [](std::size_t) { return Tick{}; });
    measure("Traffic, no worker awaited", kTimes,
            [&](std::size_t i) { return traffic(i, all_, {}, {}); });
    measure("Traffic, half awaits half", kTimes,
            [&](std::size_t i) { return traffic(i, {}, odd_, even_); });
    measure("Progress", kTimes, [&](std::size_t i) {
      return FromWorker<Progress>{worker(i % n), {Epoch(0), i / n + 1}};
    });
    measure("AgentHeard", kTimes, [&](std::size_t i) { return AgentHeard{hosts_[i % n]}; });
  }

  /// Two boundaries: the first has one epoch's arrivals, the second is the same again.
  void boundaries() {
    arrive("Arrive", 1, false);
    const double begin = cpu_seconds();
    arrive("Arrive, again", 2, false);
    rows["all arrive at a boundary"] = (cpu_seconds() - begin) * 1e6;
    order.emplace_back("all arrive at a boundary");
  }

  /// `tries` failed tries of a line that nobody can reach; then the same events as in train().
  void dead_line(std::size_t tries) {
    const Host dead{"", "dead", 0};
    std::vector<HostSlots> lines;
    for (const auto& host : hosts_) lines.push_back({host, 1});
    lines.push_back({dead, 1});
    step(HostsAccepted{lines});
    const double begin = cpu_seconds();
    for (std::size_t i = 0; i < tries; ++i) {
      step(AttachFailed{dead, "no route to host"});
      seconds_ += 120;  // beyond the longest delay between two tries
      step(AgentHeard{hosts_[0]});
    }
    rows["AttachFailed"] = (cpu_seconds() - begin) / static_cast<double>(tries) * 1e6;
    order.emplace_back("AttachFailed");
    for (std::size_t i = 0; i < servers_; ++i) step(traffic(i, all_, {}, {}));
    measure("Tick, after the tries", 1000, [](std::size_t) { return Tick{}; });
    measure("Traffic, after the tries", 1000,
            [&](std::size_t i) { return traffic(i, all_, {}, {}); });
  }

  [[nodiscard]] std::size_t workers_known() const { return job_.membership().workers().size(); }
  [[nodiscard]] std::string phase() const { return std::string(job_.phase()); }

  std::map<std::string, double> rows;
  std::vector<std::string> order;

 private:
  static std::vector<Host> hosts_named(std::size_t count) {
    std::vector<Host> hosts;
    for (std::size_t i = 0; i < count; ++i) hosts.push_back({"", "node" + std::to_string(i), 0});
    return hosts;
  }
  static WorkerId worker(std::size_t i) { return WorkerId(static_cast<std::uint32_t>(i)); }
  static ServerId server(std::size_t i) { return ServerId(static_cast<std::uint32_t>(i)); }

  [[nodiscard]] JobOptions options() const {
    JobOptions made;
    made.workers = hosts_;
    made.servers.assign(hosts_.begin(), hosts_.begin() + static_cast<std::ptrdiff_t>(servers_));
    return made;
  }
  [[nodiscard]] Instant now() const {
    const auto since =
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds_));
    return {Time(since), static_cast<std::int64_t>(seconds_ * 1e9)};
  }
  void step(const JobEvent& event) {
    seconds_ += kStep;
    for (const auto& effect : job_.step(event, now()))
      if (const auto* commit = std::get_if<SendCommit>(&effect))
        acks_.push_back({commit->server, {commit->message.generation}});
  }
  [[nodiscard]] JobEvent traffic(std::size_t i, std::vector<WorkerId> busy,
                                 std::vector<WorkerId> owing, std::vector<WorkerId> waiting) const {
    Traffic seen;
    seen.alive = all_;
    seen.busy = std::move(busy);
    seen.owing = std::move(owing);
    seen.waiting = std::move(waiting);
    return FromServer<Traffic>{server(i % servers_), std::move(seen)};
  }
  void arrive(const std::string& row, std::uint32_t epoch, bool join) {
    measure(row, hosts_.size(), [&](std::size_t i) {
      return FromWorker<Arrive>{worker(i), {Epoch(epoch), join, Generation(0)}};
    });
    const std::vector<FromServer<CommitAck>> acks = std::exchange(acks_, {});
    for (const auto& ack : acks) step(ack);
  }

  double seconds_ = 1000;
  std::vector<Host> hosts_;
  std::size_t servers_;
  Job job_;
  std::vector<WorkerId> all_, even_, odd_;
  std::vector<FromServer<CommitAck>> acks_;
};

void run(Bench& bench, std::size_t tries) {
  bench.start();
  bench.train();
  bench.boundaries();
  bench.dead_line(tries);
}

std::size_t number(const char* option, const char* text) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  if (value > 0 && *end == '\0') return value;
  std::fprintf(stderr, "job_bench: %s needs a number from 1\n", option);
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t hosts = 1000;
  std::size_t servers = 64;
  std::size_t tries = 10'000;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    std::size_t* const to = option == "--hosts"          ? &hosts
                            : option == "--servers"      ? &servers
                            : option == "--failed-tries" ? &tries
                                                         : nullptr;
    if (to == nullptr || i + 1 == argc) {
      std::fputs("usage: job_bench [--hosts N] [--servers N] [--failed-tries N]\n", stderr);
      return 2;
    }
    *to = number(argv[i], argv[i + 1]);
  }
  Bench few(kFewHosts, servers);
  run(few, tries);
  Bench many(hosts, servers);
  run(many, tries);
  std::printf("job_bench: %zu hosts, a worker on each, %zu servers; job is %s; %zu workers known\n",
              hosts, std::min(hosts, servers), many.phase().c_str(), many.workers_known());
  std::printf("%-34s %12s %18s\n", "CPU time of one event", "us", "beside 16 hosts");
  for (const auto& row : many.order)
    std::printf("%-34s %12.2f %18.1f\n", row.c_str(), many.rows[row],
                many.rows[row] / std::max(few.rows[row], 1e-3));
  return 0;
}
