#include "test/bench/swarm/trial.h"

#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "io/asio.h"
#include "io/clock.h"
#include "io/fd.h"
#include "io/job/control_client.h"
#include "io/job/spec.h"
#include "io/subprocess.h"
#include "io/task_group.h"
#include "test/bench/swarm/supervisor_run.h"
#include "test/bench/swarm/swarm.h"

namespace dt::swarm {

using io::awaitable;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr std::uint32_t kMostServers = 64;  ///< dtlaunch's default of -s.
constexpr Duration kLook = 2ms;             ///< How exactly a phase's end is seen.
constexpr Duration kPhaseLimit = 180s;
constexpr Duration kEdge = 250ms;  ///< Of an epoch, left out where its middle is measured.
constexpr int kQuestions = 7;

double ms(Duration d) { return seconds(d) * 1e3; }

std::string name_of(std::uint32_t index) { return fmt::format("node{:04}", index); }

Host host_of(std::uint32_t index) {
  Host host;
  host.name = name_of(index);
  return host;
}

/// "median 12 ms, longest 15"
std::string spread_of(std::vector<double> values) {
  if (values.empty()) return "none";
  std::sort(values.begin(), values.end());
  return fmt::format("median {:.1f} ms, longest {:.1f}", values[values.size() / 2], values.back());
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void say(const char* what, const std::string& figures) {
  std::puts(fmt::format("{:<16} {}", what, figures).c_str());
  std::fflush(stdout);
}

class Trial {
 public:
  Trial(io::asio::io_context& context, TrialOptions options, std::string folder)
      : options_(std::move(options)),
        folder_(std::move(folder)),
        swarm_(context.get_executor(), folder_ + "/swarm"),
        tasks_(context.get_executor()) {}

  awaitable<void> run() {
    if (auto listening = swarm_.listen(); !listening)
      throw std::runtime_error(listening.error().message);
    tasks_.spawn(swarm_.run());
    std::exception_ptr failure;
    try {
      co_await measure();
    } catch (...) {
      failure = std::current_exception();
    }
    supervisor_.reset();
    swarm_.stop();
    co_await tasks_.join();
    if (failure) std::rethrow_exception(failure);
  }

 private:
  awaitable<void> measure() {
    say("swarm",
        fmt::format("{} hosts with a worker each, {} servers; epochs of {:.1f} s, steps of "
                    "{:.0f} ms; load {:.1f}",
                    options_.hosts, options_.servers, seconds(options_.epoch), ms(course().step),
                    load()));
    co_await start();
    co_await quiet();
    co_await first_boundary();
    co_await train("all at once", Duration::zero());
    co_await train("spread", options_.spread);
    tell_training();
    co_await ask_status();
    tell_memory();
    co_await join();
    co_await lose();
    co_await ask_status();
    tell_memory();
    co_await end();
  }

  // ---------------------------------------------------------------- phases

  awaitable<void> start() {
    course().may_open = false;
    course().epoch = options_.epoch;
    const Time begin = io::steady_now();
    auto started = co_await SupervisorRun::start(spec(), folder_ + "/swarm", folder_ + "/log");
    if (!started) throw std::runtime_error(started.error().message);
    supervisor_.emplace(std::move(*started));
    const auto is_there = [this] { return tally().waiting == options_.hosts; };
    co_await until("every worker to start", is_there);
    say("start", fmt::format("agents, servers and workers are there after {:.2f} s; CPU {:.2f} s",
                             seconds(io::steady_now() - begin), seconds(supervisor_->cpu())));
  }

  awaitable<void> quiet() {
    co_await io::sleep_for(1s);
    const double share = co_await cpu_share(options_.epoch);
    say("quiet", fmt::format("CPU {:.1f} %", share));
  }

  awaitable<void> first_boundary() {
    const Duration before = supervisor_->cpu();
    course().may_open = true;
    co_await released(Epoch(0), options_.hosts);
    const BoundaryTimes& b = tally().boundaries[Epoch(0)];
    say("first boundary",
        fmt::format("last arrival to last release {:.1f} ms; CPU {:.2f} s",
                    ms(b.releases.last - b.arrivals.last), seconds(supervisor_->cpu() - before)));
  }

  /// Some epochs; their boundaries, and the CPU in the middle of them.
  awaitable<void> train(const char* how, Duration spread) {
    course().spread = spread;
    Epoch epoch = now_in();
    std::vector<double> pauses, waits, costs;
    const std::uint64_t journal = journal_bytes();
    for (std::uint32_t i = 0; i < options_.epochs; ++i) {
      const Time end = world().began.at(epoch) + options_.epoch;
      co_await io::sleep_for(kEdge);
      const double share = co_await cpu_share(end - kEdge - io::steady_now());
      training_.push_back(share);
      const Duration before = supervisor_->cpu();
      const Time from = io::steady_now();
      epoch = epoch.next();
      co_await released(epoch, options_.hosts);
      co_await io::sleep_for(kEdge);
      const Duration ordinary = from_seconds(share / 100 * seconds(io::steady_now() - from));
      costs.push_back(ms(supervisor_->cpu() - before - ordinary));
      const BoundaryTimes& b = tally().boundaries[epoch];
      pauses.push_back(ms(b.releases.last - b.arrivals.last));
      waits.push_back(ms(b.releases.last - b.arrivals.first));
    }
    say("boundary",
        fmt::format("arrivals {}: last arrival to last release {}; first arrival to last release "
                    "{}; CPU {:.0f} ms a boundary",
                    how, spread_of(pauses), spread_of(waits), median(costs)));
    say("journal", fmt::format("{:.0f} bytes a boundary",
                               static_cast<double>(journal_bytes() - journal) / options_.epochs));
  }

  void tell_training() const {
    say("training", fmt::format("CPU median {:.1f} %, most {:.1f} %", median(training_),
                                *std::max_element(training_.begin(), training_.end())));
  }

  awaitable<void> join() {
    course().spread = {};
    {
      std::ofstream file(folder_ + "/job/host_worker", std::ios::app);
      for (std::uint32_t i = 0; i < options_.join; ++i) file << name_of(options_.hosts + i) << "\n";
    }
    const Duration before = supervisor_->cpu();
    const Time edit = io::steady_now();
    const auto is_warm = [this] { return tally().warm == options_.join; };
    co_await until("the newcomers to be warm", is_warm);
    const Duration warm = tally().last_warm - edit;
    const Duration cost = supervisor_->cpu() - before;
    const std::uint32_t together = options_.hosts + options_.join;
    const auto joined = [&] {
      return tally().boundaries.rbegin()->second.world_size == together &&
             tally().boundaries.rbegin()->second.releases.count == together;
    };
    co_await until("the newcomers to join", joined);
    const BoundaryTimes& b = tally().boundaries.rbegin()->second;
    say("join", fmt::format("{} hosts at once: all warm {:.2f} s after the edit, CPU {:.2f} s "
                            "meanwhile; their boundary {:.1f} ms",
                            options_.join, seconds(warm), seconds(cost),
                            ms(b.releases.last - b.arrivals.last)));
  }

  awaitable<void> lose() {
    std::vector<std::string> lost;
    const std::uint32_t together = options_.hosts + options_.join;
    for (std::uint32_t i = 0; i < options_.lose; ++i) lost.push_back(name_of(together - 1 - i));
    const std::size_t left = together - options_.lose;
    // With epochs longer than --dead-after no boundary waits for them.
    co_await released(now_in().next(), together);
    const Duration before = supervisor_->cpu();
    const Time at = io::steady_now();
    swarm_.lose(lost);
    const auto shrunk = [&] {
      const CommitTimes& last = tally().commits.rbegin()->second;
      return last.contributors == left && last.received.count >= options_.servers;
    };
    co_await until("the loss to be committed", shrunk);
    const auto first =
        std::find_if(tally().commits.begin(), tally().commits.end(), [&](const auto& c) {
          return c.second.contributors < together && c.second.received.first >= at;
        });
    const Duration all = tally().commits.rbegin()->second.received.last - at;
    say("loss",
        fmt::format("{} hosts at once: the first commit without one after {:.2f} s, without "
                    "all of them after {:.2f} s ({} commits); CPU {:.2f} s meanwhile",
                    options_.lose, seconds(first->second.received.first - at), seconds(all),
                    std::distance(first, tally().commits.end()),
                    seconds(supervisor_->cpu() - before)));
    const Epoch next = now_in().next();
    co_await released(next, left);
    const double share = co_await cpu_share(options_.epoch - 2 * kEdge);
    say("after the loss", fmt::format("boundary {:.1f} ms; CPU {:.1f} % in training",
                                      ms(tally().boundaries[next].releases.last -
                                         tally().boundaries[next].arrivals.last),
                                      share));
  }

  awaitable<void> ask_status() {
    std::vector<double> alone, program, cost;
    std::size_t bytes = 0;
    for (int i = 0; i < kQuestions; ++i) {
      const Time begin = io::steady_now();
      const Duration before = supervisor_->cpu();
      auto client = co_await io::ControlClient::connect(spec().socket);
      if (!client) throw std::runtime_error(client.error().message);
      const auto reply = co_await (*client)->ask(R"({"op":"status"})");
      if (!reply) throw std::runtime_error(reply.error().message);
      bytes = reply->size();
      alone.push_back(ms(io::steady_now() - begin));
      cost.push_back(ms(supervisor_->cpu() - before));
      program.push_back(ms(co_await dtctl_status()));
    }
    say("status", fmt::format("dtctl status {}; the request {} ({} kB, CPU {:.1f} ms)",
                              spread_of(program), spread_of(alone), bytes / 1024, median(cost)));
  }

  void tell_memory() const {
    const Memory m = supervisor_->memory();
    say("memory",
        fmt::format("RSS {:.0f} MB, PSS {:.0f} MB, largest {:.0f} MB; journal {:.1f} MB", m.rss_mb,
                    m.pss_mb, m.peak_mb, static_cast<double>(journal_bytes()) / 1048576.0));
  }

  awaitable<void> end() {
    swarm_.bring_back();  // or the end waits for those that are out of reach
    const Time begin = io::steady_now();
    const Duration before = supervisor_->cpu();
    auto client = co_await io::ControlClient::connect(spec().socket);
    if (!client) throw std::runtime_error(client.error().message);
    const auto reply = co_await (*client)->ask(R"({"op":"stop","why":"the bench is over"})");
    if (!reply) throw std::runtime_error(reply.error().message);
    std::optional<int> code;
    Duration cost{};
    const auto gone = [&] {
      cost = std::max(cost, supervisor_->cpu() - before);
      return (code = supervisor_->ended()).has_value();
    };
    co_await until("the job to end", gone);
    say("end", fmt::format("after {:.2f} s with exit code {}; CPU {:.2f} s",
                           seconds(io::steady_now() - begin), *code, seconds(cost)));
  }

  // ---------------------------------------------------------------- what they use

  [[nodiscard]] World& world() { return swarm_.world(); }
  [[nodiscard]] Course& course() { return world().course; }
  [[nodiscard]] Tally& tally() { return world().tally; }
  [[nodiscard]] Epoch now_in() { return world().began.rbegin()->first; }

  awaitable<void> until(std::string what, std::function<bool()> done) {
    const Time limit = io::steady_now() + kPhaseLimit;
    while (!done()) {
      if (io::steady_now() > limit)
        throw std::runtime_error(
            fmt::format("waited in vain for {}; {} agents have a supervisor, {} workers are warm; "
                        "see {}/log (--folder keeps it)",
                        what, swarm_.attached(), tally().warm, folder_));
      if (supervisor_ && what != "the job to end" && supervisor_->ended())
        throw std::runtime_error(
            fmt::format("the supervisor ended before {}; see {}/log "
                        "(--folder keeps it)",
                        what, folder_));
      co_await io::sleep_for(kLook);
    }
  }

  awaitable<void> released(Epoch epoch, std::size_t workers) {
    return until(fmt::format("epoch {} to begin", epoch), [this, epoch, workers] {
      const auto b = tally().boundaries.find(epoch);
      return b != tally().boundaries.end() && b->second.releases.count >= workers;
    });
  }

  /// In percent of a core.
  awaitable<double> cpu_share(Duration window) {
    const Duration before = supervisor_->cpu();
    const Time begin = io::steady_now();
    co_await io::sleep_for(std::max<Duration>(window, kEdge));
    co_return 100 * seconds(supervisor_->cpu() - before) / seconds(io::steady_now() - begin);
  }

  awaitable<Duration> dtctl_status() {
    const io::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    const std::string dtctl = (io::program_folder() / "dtctl").string();
    const Time begin = io::steady_now();
    const auto pid = io::spawn(dtctl, {dtctl, "--job-dir", folder_ + "/job", "status"},
                               {null.get(), null.get(), null.get()}, io::ProcessGroup::kOwn);
    if (!pid) throw std::runtime_error(pid.error().message);
    int status = 0;
    while (::waitpid(*pid, &status, WNOHANG) == 0) co_await io::sleep_for(500us);
    if (status != 0) throw std::runtime_error("dtctl status failed");
    co_return io::steady_now() - begin;
  }

  [[nodiscard]] std::uint64_t journal_bytes() const {
    std::error_code ec;
    const auto size = fs::file_size(folder_ + "/state/journal", ec);
    return ec ? 0 : size;
  }

  static double load() {
    double average = 0;
    ::getloadavg(&average, 1);
    return average;
  }

  [[nodiscard]] io::JobSpec spec() const {
    io::JobSpec spec;
    spec.job = "swarm";
    spec.job_dir = folder_ + "/job";
    spec.state_dir = folder_ + "/state";
    spec.socket = folder_ + "/control";
    spec.command = {"train_cmd"};
    spec.cwd = "/";
    spec.elastic = true;
    spec.detached = true;
    for (std::uint32_t i = 0; i < options_.hosts; ++i) spec.workers.push_back(host_of(i));
    spec.servers.assign(spec.workers.begin(), spec.workers.begin() + options_.servers);
    spec.known_hosts = spec.workers;
    return spec;
  }

  TrialOptions options_;
  std::string folder_;
  Swarm swarm_;
  io::TaskGroup tasks_;
  std::optional<SupervisorRun> supervisor_;
  std::vector<double> training_;
};

/// A folder for one trial.
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)), is_kept_(!path_.empty()) {
    std::string made = (fs::temp_directory_path() / "dt_swarm_XXXXXX").string();
    if (!is_kept_ && ::mkdtemp(made.data()) != nullptr) path_ = made;
    fs::create_directories(path_ + "/job");
    fs::create_directories(path_ + "/state");
    fs::permissions(path_ + "/state", fs::perms::owner_all);
  }
  ~Folder() {
    std::error_code ignored;
    if (!is_kept_) fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool is_kept_;
};

}  // namespace

int run_trial(TrialOptions options) {
  if (options.servers == 0) options.servers = std::min(options.hosts, kMostServers);
  if (options.join == 0) options.join = std::max(1U, options.hosts / 10);
  if (options.lose == 0) options.lose = std::max(1U, options.hosts / 20);
  const Folder folder(options.folder);
  io::asio::io_context context(1);
  Trial trial(context, options, folder.path());
  std::exception_ptr failure;
  boost::asio::co_spawn(context, trial.run(), [&](std::exception_ptr error) { failure = error; });
  context.run();
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    std::fputs(fmt::format("swarm_bench: {}\n", e.what()).c_str(), stderr);
    return 1;
  }
  return 0;
}

}  // namespace dt::swarm
