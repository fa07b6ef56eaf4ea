#include "supervisor/control/fleet_requests.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/job/host_table.h"
#include "core/job/job.h"
#include "core/job/membership.h"
#include "core/job/notices.h"
#include "core/job/server_group.h"
#include "io/clock.h"
#include "io/last_words.h"
#include "io/subprocess.h"
#include "io/task_group.h"
#include "io/within.h"
#include "launcher/backend/child_stream.h"

namespace dt::supervisor {

using io::awaitable;
using nlohmann::json;
using namespace std::chrono_literals;

namespace {

constexpr Duration kFirstDelay = 1s;  ///< Before a dtfleet that failed is started again.
constexpr Duration kMostDelay = 60s;
constexpr Duration kLongestAnswer = 20s;
constexpr Duration kLongestResize = 30s;
constexpr Duration kLetGo = 15s;
/// From the wish to the first holder that the queue shows.
constexpr Duration kUntilHolders = 60s;

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Reached by srun, in a Slurm job of its own.
bool needs_holder(const io::JobSpec& spec, const Job& job, const Host& named) {
  const Host& host = job.hosts().as_given(named);
  return host.user.empty() && host.port == 0 && io::way_to(spec, host) == StarterKind::kSlurm &&
         node_of(host, spec.allocation) == nullptr;
}

bool has_member(const Membership& membership, const Host& host) {
  return std::ranges::any_of(membership.workers_on(host), [&](WorkerId id) {
    const Worker* worker = membership.find(id);
    return worker &&
           (worker->state == WorkerState::kMember || worker->state == WorkerState::kLeaving);
  });
}

/// Of all that host_worker names, beyond --max-workers too; without places that were left.
std::uint32_t wanted_by(const Membership& membership) {
  std::uint32_t sum = membership.wanted();
  for (const HostSlots& beyond : membership.beyond_limit()) sum += beyond.slots;
  return sum;
}

/// What HolderOrder has of the job.
json order_facts(const io::JobSpec& spec) {
  json excluded = json::array();
  if (spec.allocation && spec.allocation->kind == StarterKind::kSlurm)
    for (const AllocatedNode& node : spec.allocation->nodes) excluded.push_back(node.name);
  return {{"log", io::job_files_dir(spec) + "/logs/holder-%j.log"},
          {"agent", (io::program_folder() / "dtagent").string()},
          {"excluded", std::move(excluded)}};
}

}  // namespace

FleetRequests::FleetRequests(SupervisorContext& context)
    : context_(context),
      looks_(context.executor),
      replies_(context.executor),
      over_(context.executor, io::asio::steady_timer::time_point::max()) {}

void FleetRequests::begin(bool is_resumed) {
  if (!context_.spec.fleet.empty()) return start();
  if (!is_resumed) return;
  if (!context_.spec.elastic || io::is_local(context_.spec) || !io::in_path("squeue")) return;
  is_guess_ = std::ranges::none_of(context_.job->membership().hosts(), [this](const Host& host) {
    return needs_holder(context_.spec, *context_.job, host);
  });
  start();
}

void FleetRequests::start() {
  grown_at_ = io::steady_now();
  may_rest_ = false;
  looks_.note();
  if (is_kept_) return;
  is_kept_ = true;
  context_.tasks.spawn(keep());
}

awaitable<void> FleetRequests::keep() {
  launcher::ChildProgram program;
  program.path = (io::program_folder() / "dtfleet").string();
  program.argv = {"dtfleet", "--job-dir", context_.spec.job_dir,
                  context_.spec.fleet.empty() ? "slurm" : context_.spec.fleet};
  if (!context_.spec.fleet_folder.empty())
    program.argv.insert(program.argv.end(), {"--folder", context_.spec.fleet_folder});
  Duration delay = kFirstDelay;
  for (;;) {
    const Time begun = io::steady_now();
    const bool is_last = lets_go_;
    auto stream = launcher::child_stream(context_.executor, program);
    std::string why = stream ? std::string() : stream.error().message;
    if (stream) {
      std::array<char, 4096> piece{};
      for (;;) {
        const auto n = co_await (*stream)->read(piece);
        if (!n || *n == 0) break;
      }
      const int code = (*stream)->exit_code();
      if (code == 0 && (may_rest_ || lets_go_)) break;
      if (code == 0) continue;
      why = fmt::format("dtfleet has ended with exit code {}: {}", code,
                        io::on_one_line((*stream)->stderr_tail()));
    }
    if (is_last) break;
    if (io::steady_now() - begun > kMostDelay) delay = kFirstDelay;
    reported_.trouble = why;
    context_.note(Note::kFailure, "fleet_failed",
                  fmt::format("{}; it is started again in {:.0f} s", why, seconds(delay)));
    co_await looks_.after(looks_.number(), delay);
    delay = std::min(2 * delay, kMostDelay);
  }
  is_kept_ = false;
  reported_.text.clear();
  reported_.trouble.clear();
  over_.cancel();
}

std::string FleetRequests::why_not_more(const ControlAsk& ask, std::uint64_t asked) const {
  const io::JobSpec& spec = context_.spec;
  if (!spec.elastic)
    return "the job was started without --elastic-training-enabled: nothing joins it";
  if (io::is_local(spec))
    return "the job's hosts are all this machine: a job with -H, or inside of an allocation, can "
           "grow";
  if (is_slurm() && !(io::in_path("squeue") && io::in_path("srun")))
    return "the job's supervisor has no squeue and srun in its PATH (Debian's package "
           "slurm-client)";
  const Membership& membership = context_.job->membership();
  const std::uint64_t most = membership.limits().most;
  const std::uint64_t sum = wanted_by(membership) + asked + ask.slots;
  if (most == 0 || sum <= most) return {};
  return fmt::format("{} more workers would be {}, and --max-workers is {}{}", ask.slots, sum, most,
                     asked > 0 ? fmt::format(" ({} are asked for already)", asked) : "");
}

awaitable<std::string> FleetRequests::resize(ControlAsk ask) {
  const bool grows = ask.op == Op::kGrow;
  const std::string why_not = grows ? why_not_more(ask, is_slurm() ? ask.asked : asked_) : "";
  if (!why_not.empty()) co_return error_reply(why_not);
  if (is_slurm()) {
    if (!grows) co_return error_reply("dtctl itself gives Slurm's nodes back");
    is_guess_ = false;
    start();
    json reply = order_facts(context_.spec);
    reply["ok"] = true;
    co_return dump(reply);
  }
  if (resize_) co_return error_reply("another grow or shrink is under way: try again");
  resize_ = Resize{io::wall_now(), std::move(ask), {}};
  looks_.note();
  const Time until = io::steady_now() + kLongestResize;
  while (resize_->reply.empty() && io::steady_now() < until)
    co_await replies_.after(replies_.number(), until - io::steady_now());
  std::string reply = std::exchange(resize_, std::nullopt)->reply;
  if (!reply.empty()) co_return reply;
  co_return error_reply(fmt::format("no answer of {} within {:.0f} s: see dtctl status",
                                    context_.spec.fleet, seconds(kLongestResize)));
}

void FleetRequests::reply_resize(std::string reply) {
  if (!resize_) return;
  resize_->reply = std::move(reply);
  replies_.note();
}

void FleetRequests::take(const json& report) {
  reported_ = {report.value("provider", ""), report.value("text", ""), report.value("trouble", "")};
  asked_ = report.value("asked", std::uint64_t{0});
  if (resize_ && report.value("resized", std::int64_t{0}) == resize_->id) {
    const std::string error = report.value("resize_error", "");
    reply_resize(error.empty() ? dump({{"ok", true}, {"said", report.value("resize_said", "")}})
                               : error_reply(error));
  }
  is_guess_ = is_guess_ && reported_.text.empty();
  if (is_guess_) reported_.trouble.clear();
  for (const json& news : report.value("news", json::array()))
    if (news.is_string()) context_.note(Note::kInfo, "fleet", news.get<std::string>());
}

awaitable<std::string> FleetRequests::answer(ControlAsk ask) {
  if (ask.report) {
    const json report = json::parse(*ask.report, nullptr, false);
    try {
      if (report.is_object()) take(report);
    } catch (const json::exception& e) {
      co_return error_reply(fmt::format("the fleet's report cannot be read: {}", e.what()));
    }
  }
  const Duration wait =
      from_seconds(std::clamp(ask.deadline_s.value_or(0), 0.0, seconds(kLongestAnswer)));
  const std::uint64_t number = co_await looks_.after(ask.from, wait);
  may_rest_ = is_slurm() && reported_.text.empty() && reported_.trouble.empty() && !lets_go_ &&
              io::steady_now() - grown_at_ > kUntilHolders;
  co_return wish(number);
}

std::string FleetRequests::wish(std::uint64_t number) const {
  const io::JobSpec& spec = context_.spec;
  const Membership& membership = context_.job->membership();
  json hosts = json::object();
  const auto of = [&](const Host& host) -> json* {
    if (is_slurm() && (!host.user.empty() || host.port != 0)) return nullptr;
    json& entry = hosts[host.name];
    if (!entry.is_null()) return &entry;
    const auto& all = context_.job->hosts().all();
    const auto known = all.find(host);
    const bool is_base = membership.base_count(host) > 0;
    const bool is_held = !is_base && is_slurm() && needs_holder(spec, *context_.job, host);
    entry = {{"in_file", 0},
             {"empty", membership.empty_places(host)},
             {"is_running", membership.anyone_runs_on(host) ||
                                (!is_base && context_.job->servers().serves(host))},
             {"is_member", has_member(membership, host)},
             {"is_given_up", known != all.end() && known->second.given_up},
             {"is_linked", context_.job->hosts().is_heard(host)},
             {"is_leaving",
              context_.job->notices().of_hosts().contains(host) || membership.has_departed(host)},
             {"is_own", is_slurm() ? !is_held : is_base},
             {"is_base", is_base},
             {"is_replaced", !is_base && std::ranges::count(spec.workers, host) > 0},
             {"needs_machine", is_held}};
    return &entry;
  };
  std::uint32_t lines = 0;
  for (const HostSlots& line : membership.file()) {
    lines += line.slots;
    json* entry = of(line.host);
    if (entry) (*entry)["in_file"] = entry->value("in_file", 0U) + line.slots;
  }
  for (const auto& [id, worker] : membership.workers()) of(worker.host);
  for (const Host& host : spec.workers) of(host);
  json reply = order_facts(spec);
  if (resize_ && resize_->reply.empty())
    reply["resize"] = {{"id", resize_->id},
                       {"grows", resize_->ask.op == Op::kGrow},
                       {"count", resize_->ask.slots},
                       {"host", resize_->ask.host.value_or("")}};
  reply.update({{"ok", true},
                {"job", spec.job},
                {"number", number},
                {"lets_go", lets_go_},
                {"may_rest", may_rest_},
                {"max_workers", membership.limits().most},
                {"wanted", wanted_by(membership)},
                {"lines", lines},
                {"hosts", std::move(hosts)}});
  return dump(reply);
}

awaitable<void> FleetRequests::let_go() {
  lets_go_ = true;
  reply_resize(error_reply("the job has ended"));
  looks_.note();
  if (!is_kept_) co_return;
  over_.expires_after(kLetGo);
  co_await over_.async_wait(io::tok);
}

std::optional<io::FleetStatus> FleetRequests::status() const {
  if (!reported_.text.empty() || !reported_.trouble.empty()) return reported_;
  if (is_slurm() || !is_kept_) return std::nullopt;
  return io::FleetStatus{context_.spec.fleet, "no list yet", ""};
}

}  // namespace dt::supervisor
