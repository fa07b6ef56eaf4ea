#include "supervisor/fleet/fleet_run.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>

#include "io/fd.h"
#include "io/job/control_protocol.h"
#include "io/job/job_pointer.h"

namespace dt::supervisor {

using io::awaitable;
using nlohmann::json;
using namespace std::chrono_literals;

namespace {

constexpr Duration kAtOnce = 0s;
constexpr Duration kSoon = 1s;
/// A queue may take hours: Slurm is asked more and more seldom, and often again when something has
/// changed.
constexpr Duration kSeldom = 20s;
constexpr double kSlower = 1.5;
/// A replacement waits this many seconds for an agent: at --max-workers its host joins only after
/// the old host has left.
constexpr std::uint32_t kReplacementWaits = 900;
constexpr int kTries = 5;  ///< To give everything back at the end.

std::string what(const Holder& holder) {
  return holder.node.empty() ? fmt::format("Slurm job {}", holder.id)
                             : fmt::format("Slurm job {} ({})", holder.id, holder.node);
}

/// Kept holders of the previous poll that are missing in the queue now.
std::vector<Holder> kept_and_gone(const std::vector<Holder>& before,
                                  const std::vector<Holder>& now) {
  std::vector<Holder> gone;
  for (const Holder& holder : before) {
    if (!holder.kept || std::ranges::find(now, holder.id, &Holder::id) != now.end()) continue;
    gone.push_back(holder);
    gone.back().state = HolderState::kEnding;
  }
  return gone;
}

/// Holds the job for this dtfleet, as long as the descriptor is open: two would ask for two
/// replacements of one node.
Result<io::Fd> only_one(const io::JobPointer& job) {
  const std::string path = job.state_dir + "/fleet.lock";
  io::Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock) return tl::unexpected(errno_error(errno, "open " + path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(
        ErrorKind::kInvalid,
        "another dtfleet serves job {} already: the job's supervisor starts one, and starts "
        "it again when it ends",
        job.job);
  return lock;
}

JobHost host_from(const json& value) {
  JobHost host;
  host.in_file = value.value("in_file", 0U);
  host.empty = value.value("empty", 0U);
  host.is_running = value.value("is_running", false);
  host.is_given_up = value.value("is_given_up", false);
  host.is_leaving = value.value("is_leaving", false);
  host.needs_holder = value.value("needs_holder", false);
  return host;
}

}  // namespace

Result<FleetWish> parse_wish(std::string_view reply) {
  try {
    const json value = json::parse(reply);
    if (!value.value("ok", false))
      return fail(ErrorKind::kDenied, "{}", value.value("error", "the supervisor refused"));
    FleetWish wish;
    wish.number = value.at("number").get<std::uint64_t>();
    wish.may_rest = value.at("may_rest").get<bool>();
    wish.job.lets_go = value.at("lets_go").get<bool>();
    wish.job.max_workers = value.at("max_workers").get<std::uint32_t>();
    wish.job.wanted = value.at("wanted").get<std::uint32_t>();
    wish.job.lines = value.value("lines", wish.job.wanted);
    wish.order.log = value.value("log", "");
    wish.order.agent = value.value("agent", "");
    wish.order.excluded = value.value("excluded", std::vector<std::string>());
    for (const auto& [name, host] : value.at("hosts").items())
      wish.job.hosts[name] = host_from(host);
    return wish;
  } catch (const json::exception& e) {
    return fail(ErrorKind::kProtocol, "the supervisor's answer is of another version: {}",
                e.what());
  }
}

awaitable<Result<void>> FleetRun::run() {
  const auto at_start = io::read_job_pointer(job_dir_);
  if (!at_start) co_return tl::unexpected(at_start.error());
  if (at_start->ended) co_return fail(ErrorKind::kUnavailable, "no job is running in {}", job_dir_);
  const auto lock = only_one(*at_start);
  if (!lock) co_return tl::unexpected(lock.error());
  job_ = at_start->job;
  Duration wait{};
  for (int failures = 0;;) {
    auto looked = co_await look(wait);
    if (looked && *looked) co_return Result<void>();
    if (!looked) {
      client_.reset();
      const auto pointer = io::read_job_pointer(job_dir_);
      if (!pointer) co_return tl::unexpected(pointer.error());
      const bool is_over = pointer->ended || pointer->job != job_;
      if (is_over && (give_all_back() || ++failures == kTries)) co_return Result<void>();
    }
    wait = is_changed_ || wait < kSoon
               ? kSoon
               : std::min<Duration>(std::chrono::duration_cast<Duration>(wait * kSlower), kSeldom);
    if (!looked) co_await io::sleep_for(wait);
  }
}

awaitable<Result<bool>> FleetRun::look(Duration wait) {
  is_changed_ = false;
  if (!client_) {
    const auto pointer = io::read_job_pointer(job_dir_);
    if (!pointer) co_return tl::unexpected(pointer.error());
    if (pointer->ended || pointer->job != job_)
      co_return fail(ErrorKind::kUnavailable, "the job has ended");
    auto client = co_await io::ControlClient::connect(pointer->socket);
    if (!client) co_return tl::unexpected(client.error());
    client_ = std::move(*client);
    seen_ = 0;
  }
  const auto waited = co_await ask_wish(wait);
  if (!waited) co_return tl::unexpected(waited.error());
  if (waited->number != std::exchange(seen_, waited->number)) is_changed_ = true;
  if (waited->may_rest) co_return true;
  auto listed = SlurmQueue(job_).list();
  trouble_ = listed ? std::string() : listed.error().message;
  // The job ends, and Slurm has not once shown its queue: there may be none to wait for.
  if (!listed) co_return waited->job.lets_go && !has_listed_;
  has_listed_ = true;
  if (*listed != holders_) is_changed_ = true;
  for (const Holder& holder : kept_and_gone(holders_, *listed)) gone_.push_back(holder);
  holders_ = std::move(*listed);
  // Slurm changes no comment of a job that ends.
  for (Holder& holder : holders_)
    if (replaced_.contains(holder.id)) holder.kept.reset();
  // The wish is to be newer than the list: a host that is in it was added for a holder of the list.
  const auto wish = co_await ask_wish(kAtOnce);
  if (!wish) co_return tl::unexpected(wish.error());
  std::erase_if(gone_, [&](const Holder& holder) {
    const auto host = wish->job.hosts.find(holder.node);
    return host == wish->job.hosts.end() || !host->second.is_leaving;
  });
  std::vector<Holder> all = holders_;
  all.insert(all.end(), gone_.begin(), gone_.end());
  HolderPlan plan = plan_holders(all, wish->job, unheld_);
  unheld_ = std::move(plan.unheld);
  for (HolderAction& action : plan.actions) {
    const auto done = co_await act(std::move(action), wish->order);
    if (!done && done.error().kind == ErrorKind::kClosed) co_return tl::unexpected(done.error());
    if (done)
      is_changed_ = true;
    else
      trouble_ = done.error().message;
  }
  std::erase_if(gone_, [this](const Holder& holder) { return replaced_.contains(holder.id); });
  if (!wish->job.lets_go) co_return false;
  const bool is_empty = std::ranges::all_of(
      holders_, [](const Holder& holder) { return holder.state == HolderState::kEnding; });
  co_return is_empty;
}

awaitable<Result<FleetWish>> FleetRun::ask_wish(Duration wait) {
  json report{{"text", holders_for_people(holders_)}, {"trouble", trouble_}};
  report["news"] = std::exchange(news_, {});
  json request{{"op", "fleet"},
               {"report", report.dump(-1, ' ', false, json::error_handler_t::replace)}};
  if (wait > Duration{}) {
    request["from"] = seen_;
    request["deadline_s"] = seconds(wait);
  }
  const auto reply = co_await client_->ask(request.dump());
  if (!reply) co_return tl::unexpected(reply.error());
  co_return parse_wish(*reply);
}

awaitable<Result<void>> FleetRun::request(std::string op, std::string host, std::uint32_t slots) {
  const json ask{{"op", op},
                 {"host", host},
                 {"slots", slots},
                 {"unless_there", true},
                 {"control", io::kControlVersion}};
  const auto reply = co_await client_->ask(ask.dump());
  if (!reply) co_return tl::unexpected(reply.error());
  const json answer = json::parse(*reply, nullptr, false);
  if (!answer.is_object() || !answer.value("ok", false))
    co_return fail(ErrorKind::kDenied, "{} {}: {}", op, host,
                   answer.is_object() ? answer.value("error", "refused") : "no answer");
  co_return Result<void>();
}

Result<void> FleetRun::replace(const Holder& taken, HolderOrder order) {
  order.job = job_;
  order.slots = taken.slots;
  order.words = *taken.kept;
  order.is_kept = true;
  order.lonely_s = kReplacementWaits;
  order.replaces = taken.id;
  const auto id = SlurmQueue(job_).submit(order);
  if (!id) return tl::unexpected(id.error());
  news_.push_back(
      fmt::format("{} is taken away: Slurm job {} asks for another node", what(taken), *id));
  return {};
}

Result<void> FleetRun::act_in_queue(const HolderAction& action, HolderOrder order) {
  const SlurmQueue queue(job_);
  const auto holder_of = [this](std::uint32_t id) {
    const auto listed = std::ranges::find(holders_, id, &Holder::id);
    return listed != holders_.end() ? *listed : *std::ranges::find(gone_, id, &Holder::id);
  };
  if (const auto* mark = std::get_if<MarkJoined>(&action)) {
    Holder holder = holder_of(mark->id);
    holder.is_joined = true;
    return queue.mark(holder);
  }
  if (const auto* lost = std::get_if<ReplaceHolder>(&action)) {
    Holder holder = holder_of(lost->id);
    if (!lost->is_asked_for)
      if (auto asked = replace(holder, std::move(order)); !asked) return asked;
    replaced_.insert(holder.id);
    holder.kept.reset();
    return holder.state == HolderState::kEnding ? Result<void>() : queue.mark(holder);
  }
  const auto& cancel = std::get<CancelHolder>(action);
  Holder holder = holder_of(cancel.id);
  if (std::exchange(holder.kept, std::nullopt))
    if (auto marked = queue.mark(holder); !marked) return marked;
  auto cancelled = queue.cancel(cancel.id);
  if (cancelled) news_.push_back(fmt::format("{} is given back: {}", what(holder), cancel.why));
  return cancelled;
}

awaitable<Result<void>> FleetRun::act(HolderAction action, HolderOrder order) {
  if (const auto* add = std::get_if<AddHost>(&action)) {
    auto added = co_await request("add", fmt::format("{} via=slurm", add->node), add->slots);
    if (added) news_.push_back(fmt::format("Slurm has given {}: it is added", add->node));
    co_return std::move(added);
  }
  if (const auto* drop = std::get_if<DropHost>(&action)) {
    auto removed = co_await request("remove", drop->node, 1);
    if (removed)
      news_.push_back(
          fmt::format("Slurm has {} no more: its lines are taken out of host_worker", drop->node));
    co_return std::move(removed);
  }
  co_return act_in_queue(action, std::move(order));
}

Result<void> FleetRun::give_all_back() {
  const SlurmQueue queue(job_);
  const auto holders = queue.list();
  if (!holders) return tl::unexpected(holders.error());
  Result<void> all;
  for (const Holder& holder : *holders)
    if (auto done = queue.cancel(holder.id); !done) all = std::move(done);
  return all;
}

}  // namespace dt::supervisor
