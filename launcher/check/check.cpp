#include "launcher/check/check.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "core/preflight/judge.h"
#include "core/preflight/pairs.h"
#include "core/protocol/exit_code.h"
#include "io/asio.h"
#include "io/at_end.h"
#include "io/clock.h"
#include "io/log.h"
#include "io/stop_signals.h"
#include "io/task_group.h"
#include "io/volume_answers.h"
#include "launcher/backend/backend.h"
#include "launcher/check/host_talk.h"
#include "launcher/check/volume_probe.h"
#include "launcher/host_address.h"
#include "launcher/mount.h"
#include "launcher/reach/host_ways.h"

namespace dt::launcher {
namespace {

using namespace preflight;
using io::awaitable;
using namespace std::chrono_literals;

constexpr Duration kAnswers = 30s;  ///< A hash of a large file, dtgpucheck's parts.
constexpr Duration kVolumeAnswers = 15s;
constexpr Duration kPing = 5s;
constexpr int kPings = 8;
constexpr std::uint32_t kDialMs = 3000;
constexpr std::uint64_t kMeasuredBytes = std::uint64_t{64} << 20;
constexpr std::uint32_t kMeasureMs = 1000;
constexpr Duration kMeasured = 15s;

std::string random_word() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

class Check {
 public:
  Check(io::asio::any_io_executor executor, Backend& backend, const io::JobSpec& spec,
        CheckPlan plan, const VolumeProbe* probe)
      : executor_(executor),
        backend_(backend),
        spec_(spec),
        plan_(std::move(plan)),
        probe_(probe),
        talking_(executor) {
    if (!spec.command.empty()) all_.command = spec.command.front();
    // A program of the working folder comes with the job.
    if (!spec.sync_dst_dir.empty() && all_.command.find('/') != std::string::npos)
      all_.command.clear();
    all_.program = io::activated_program(spec);
    all_.folder = spec.job_dir;
    all_.mount = mount_of(spec.job_dir);
    all_.needs_volume = !spec.servers.empty();
    for (const auto* hosts : {&plan_.hosts, &plan_.peers})
      for (const Host& host : *hosts) {
        all_.hosts.emplace_back().host = host;
        talks_.push_back(std::make_unique<HostTalk>(executor, backend, host));
      }
    // Those have no talk.
    for (const ServerPlace& server : plan_.servers) all_.hosts.emplace_back().host = server.host;
  }

  awaitable<Findings> run() {
    io::TaskGroup hosts(executor_);
    for (std::size_t i = 0; i < talks_.size(); ++i) hosts.spawn(check_host(i));
    co_await hosts.join();
    co_await check_ways();
    if (plan_.is_full) co_await check_speeds();
    for (const auto& talk : talks_) talk->close();
    co_await talking_.join();
    co_return std::move(all_);
  }

 private:
  awaitable<void> check_host(std::size_t i) {
    HostTalk& talk = *talks_[i];
    HostFindings& found = all_.hosts[i];
    auto state = co_await talk.open();
    if (!state) {
      found.unreachable = state.error();
      talk.close();
      co_return;
    }
    talking_.spawn(talk.read_loop());
    talking_.spawn(talk.write_loop());
    if (i >= plan_.hosts.size()) {
      AskListen only = to_listen(found.host, *state);
      const std::uint32_t id = talk.ask(std::move(only));
      found.listening = co_await talk.answer<AskListen>(id, kAnswers, "a port there");
      co_return;
    }
    const bool has_command = !all_.command.empty() || !plan_.files.empty();
    AskCommand find = to_find();
    const std::uint32_t command = has_command ? talk.ask(std::move(find)) : 0;
    AskVolume see;
    if (probe_ != nullptr)
      see = {0,
             spec_.job_dir,
             probe_->path(),
             probe_->word(),
             fmt::format("host-{}", i),
             random_word()};
    const std::string own = see.own;
    const std::string own_word = see.own_word;
    const std::uint32_t volume = probe_ != nullptr ? talk.ask(std::move(see)) : 0;
    const AskMachine about_machine;
    const std::uint32_t machine = talk.ask(about_machine);
    const AskGpus about_gpus;
    const std::uint32_t gpus = talk.ask(about_gpus);
    AskListen listen = to_listen(found.host, *state);
    const std::uint32_t listening = listen.ports.empty() ? 0 : talk.ask(std::move(listen));
    co_await find_clock(i);
    found.machine = co_await talk.facts<AskMachine>(machine, kAnswers, "its cores and memory");
    if (has_command)
      found.command = co_await talk.facts<AskCommand>(command, kAnswers, "the command there");
    if (listening != 0)
      found.listening = co_await talk.answer<AskListen>(listening, kAnswers, "a port there");
    found.gpus = co_await talk.facts<AskGpus>(gpus, kAnswers, "its GPUs");
    if (probe_ == nullptr) co_return;  // hosts share no folder
    found.volume = co_await talk.facts<AskVolume>(volume, kVolumeAnswers, "the job folder there");
    co_await await_word(i, own, own_word);
  }

  /// The exchange that took least time says most.
  awaitable<void> find_clock(std::size_t i) {
    HostTalk& talk = *talks_[i];
    std::optional<ClockFacts> best;
    for (int k = 0; k < kPings; ++k) {
      const AskClock question;
      const std::int64_t sent = io::wall_now();
      const auto began = std::chrono::steady_clock::now();
      const std::uint32_t id = talk.ask(question);
      auto said = co_await talk.answer<AskClock>(id, kPing, "its clock");
      if (!said) {
        if (!best) all_.hosts[i].clock = tl::unexpected(said.error());
        break;
      }
      const double half =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / 2;
      const double offset = static_cast<double>(said->wall_ns - sent) / 1e9 - half;
      if (!best || half < best->error_s) best = ClockFacts{offset, half};
    }
    if (best) all_.hosts[i].clock = *best;
  }

  awaitable<void> await_word(std::size_t i, std::string name, std::string word) {
    HostFindings& found = all_.hosts[i];
    if (!*found.volume || (*found.volume)->state != VolumeState::kGood) co_return;
    found.unseen = co_await probe_->wait_for(name, std::move(word));
    found.squashed_to = probe_->other_owner(name);
  }

  awaitable<void> check_ways() {
    std::vector<std::size_t> from;
    std::vector<std::size_t> to;
    for (std::size_t i = 0; i < talks_.size(); ++i) {
      if (talks_[i]->is_open()) from.push_back(i);
      if (listening(i) != nullptr && !ports_of(all_.hosts[i].host).empty()) to.push_back(i);
    }
    std::vector<std::vector<Way>> ways(talks_.size());
    for (const auto& [a, b] : to.empty() ? std::vector<Pair>() : pairs_to_try(from, to)) {
      const bool is_between_peers = a >= plan_.hosts.size() && b >= plan_.hosts.size();
      if (is_between_peers) continue;
      const Listening& there = *listening(b);
      const std::size_t count = there.ports.size() - (plan_.is_full ? 1 : 0);
      for (std::size_t k = 0; k < count; ++k)
        ways[a].push_back({a, b, there.address, there.ports[k], ""});
    }
    io::TaskGroup dials(executor_);
    for (std::size_t i = 0; i < ways.size(); ++i)
      if (!ways[i].empty()) dials.spawn(dial(i, std::move(ways[i]), word_));
    for (const std::size_t i : from)
      if (i < plan_.hosts.size() && !plan_.servers.empty())
        dials.spawn(dial(i, ways_to_servers(i), ""));
    co_await dials.join();
  }

  /// Who listens there says `word`.
  awaitable<void> dial(std::size_t from, std::vector<Way> ways, std::string word) {
    AskDial question;
    question.word = std::move(word);
    question.limit_ms = kDialMs;
    for (const Way& way : ways) question.places.push_back({way.address, way.port});
    const std::uint32_t id = talks_[from]->ask(std::move(question));
    auto said = co_await talks_[from]->answer<AskDial>(id, kAnswers, "its connections");
    for (std::size_t k = 0; k < ways.size(); ++k) {
      if (!said)
        ways[k].why_not = said.error().message;
      else if (k < said->why_not.size())
        ways[k].why_not = said->why_not[k];
      all_.ways.push_back(std::move(ways[k]));
    }
  }

  /// To the job's servers.
  [[nodiscard]] std::vector<Way> ways_to_servers(std::size_t from) const {
    std::vector<Way> ways;
    for (std::size_t k = 0; k < plan_.servers.size(); ++k)
      ways.push_back(
          {from, talks_.size() + k, plan_.servers[k].address, plan_.servers[k].port, ""});
    return ways;
  }

  /// Each host and the next one, in passes in which no host is in two pairs.
  awaitable<void> check_speeds() {
    std::vector<std::size_t> there;
    for (std::size_t i = 0; i < talks_.size(); ++i)
      if (listening(i) != nullptr) there.push_back(i);
    const std::size_t pairs = there.size() > 2 ? there.size() : there.size() / 2;
    for (std::size_t pass = 0; pass < 3; ++pass) {
      io::TaskGroup flows(executor_);
      for (std::size_t k = 0; k < pairs; ++k) {
        const bool is_odd_last = k + 1 == there.size() && k % 2 == 0;
        const Pair hosts{there[k], there[(k + 1) % there.size()]};
        if ((is_odd_last ? 2 : k % 2) == pass) flows.spawn(measure(hosts));
      }
      co_await flows.join();
    }
  }

  /// Both directions, one after the other.
  awaitable<void> measure(Pair hosts) {
    Speed slower{hosts.first, hosts.second, "", 0, std::numeric_limits<double>::max()};
    for (int way = 0; way < 2; ++way, std::swap(hosts.first, hosts.second)) {
      const auto [from, to] = hosts;
      const Listening* there = listening(to);
      if (there == nullptr || !talks_[from]->is_open()) co_return;
      const AskMeasure question{
          0, {there->address, there->ports.back()}, word_, kMeasuredBytes, kMeasureMs};
      const std::uint32_t id = talks_[from]->ask(question);
      const auto said = co_await talks_[from]->answer<AskMeasure>(id, kMeasured, "its speed");
      if (!said || !said->why.empty()) {
        slower = {from, to, said ? said->why : said.error().message, 0, 0};
        break;
      }
      slower.latency_us = std::max(slower.latency_us, said->latency_us);
      slower.bytes_per_second = std::min(slower.bytes_per_second, said->bytes_per_second);
    }
    all_.speeds.push_back(std::move(slower));
  }

  /// Those of its servers, and one for MASTER_PORT where that may be.
  [[nodiscard]] std::vector<std::uint16_t> ports_of(const Host& host) const {
    if (plan_.is_of_newcomers)
      return std::vector<std::uint16_t>(plan_.peers.empty() ? 0 : 1, std::uint16_t{0});
    std::vector<std::uint16_t> ports;
    const auto servers = std::ranges::count(spec_.servers, host);
    for (std::uint16_t k = 0; k < servers && (k == 0 || spec_.data.server_port != 0); ++k)
      ports.push_back(
          static_cast<std::uint16_t>(spec_.data.server_port == 0 ? 0 : spec_.data.server_port + k));
    const bool has_master = !spec_.workers.empty() && host == spec_.workers.front();
    if (spec_.servers.empty() || (has_master && spec_.data.server_port != 0) ||
        (has_master && ports.empty()))
      ports.push_back(0);
    return ports;
  }

  [[nodiscard]] AskListen to_listen(const Host& host, const AgentState& state) const {
    AskListen question;
    question.interface = spec_.data.interface;
    question.address = host_address(spec_, host, backend_.address(host), state);
    question.ports = ports_of(host);
    if (plan_.is_full) question.ports.push_back(0);
    question.word = word_;
    return question;
  }

  [[nodiscard]] AskCommand to_find() const {
    AskCommand question;
    question.word = all_.command;
    question.cwd = spec_.cwd;
    question.files = plan_.files;
    for (const auto* variables : {&spec_.env, &spec_.env_worker})
      for (const auto& [name, value] : *variables)
        if (name == "PATH") question.path = value;
    if (!all_.program.empty()) question.first = spec_.activated.second + "/bin";
    return question;
  }

  /// Hosts with whom there is a connection, and who listen.
  [[nodiscard]] const Listening* listening(std::size_t i) const {
    const auto& found = all_.hosts[i].listening;
    return found && *found && (*found)->why.empty() && talks_[i]->is_open() ? &**found : nullptr;
  }

  io::asio::any_io_executor executor_;
  Backend& backend_;
  const io::JobSpec& spec_;
  CheckPlan plan_;
  const VolumeProbe* probe_;
  const std::string word_ = random_word();
  Findings all_;
  std::vector<std::unique_ptr<HostTalk>> talks_;
  io::TaskGroup talking_;
};

/// `spec` and `backend` live until it is done. `probe`: nullptr where hosts share no folder.
awaitable<Findings> check_hosts(Backend& backend, const io::JobSpec& spec, CheckPlan plan,
                                const VolumeProbe* probe) {
  Check check(co_await io::asio::this_coro::executor, backend, spec, std::move(plan), probe);
  co_return co_await check.run();
}

std::string new_word() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

Result<VolumeProbe> make_probe(const std::string& job_dir) {
  if (auto there = io::volume_answers(job_dir, job_dir); !there)
    return tl::unexpected(there.error());
  return VolumeProbe::make(job_dir, new_word());
}

}  // namespace

Result<preflight::Findings> run_checks(const io::JobSpec& spec, CheckPlan plan, int owner) {
  // Meanwhile a connection that has ended is an error of the write.
  const sighandler_t before = ::signal(SIGPIPE, SIG_IGN);
  const io::AtEnd broken_pipes([before] { ::signal(SIGPIPE, before); });
  std::optional<VolumeProbe> probe;
  if (!spec.no_shared_folder && spec.sync_dst_dir.empty()) {
    auto made = make_probe(spec.job_dir);
    if (!made) return tl::unexpected(made.error());
    probe.emplace(std::move(*made));
  }
  io::asio::io_context context(1);
  io::FdLog log(STDERR_FILENO);
  const auto ways = make_ways(context, spec, log);
  const auto give_up = [&probe](const boost::system::error_code& ec) {
    if (ec) return;
    if (probe) probe->remove();
    std::_Exit(kExitInterrupted);  // hosts' programs end with their connections
  };
  boost::asio::signal_set signals(context);
  io::add_stop_signals(signals);
  signals.async_wait([&](const boost::system::error_code& ec, int) { give_up(ec); });
  io::asio::posix::stream_descriptor end(context);
  if (owner >= 0) {
    end.assign(::dup(owner));
    end.async_wait(io::asio::posix::stream_descriptor::wait_read, give_up);
  }
  preflight::Findings findings;
  std::exception_ptr broken;
  const auto done = [&](std::exception_ptr error, preflight::Findings found) {
    broken = error;
    findings = std::move(found);
    context.stop();
  };
  io::asio::co_spawn(context, check_hosts(*ways, spec, std::move(plan), probe ? &*probe : nullptr),
                     done);
  context.run();
  if (broken) std::rethrow_exception(broken);
  return findings;
}

}  // namespace dt::launcher
