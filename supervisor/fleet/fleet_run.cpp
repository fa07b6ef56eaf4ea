#include "supervisor/fleet/fleet_run.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/base/lookup.h"
#include "io/clock.h"
#include "io/fd.h"
#include "io/job/control_protocol.h"
#include "io/job/job_pointer.h"
#include "io/subprocess.h"

namespace dt::supervisor {

using io::awaitable;
using nlohmann::json;
using namespace std::chrono_literals;

namespace {

constexpr Duration kAtOnce = 0s;
constexpr Duration kSoon = 1s;
/// A new line is in force as soon as the supervisor has read the file; if it was killed, later.
constexpr Duration kInForce = 3s;
constexpr int kTries = 5;  ///< To give everything back at the end.

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
  const auto is = [&value](const char* key) { return value.value(key, false); };
  return {.in_file = value.value("in_file", 0U),
          .empty = value.value("empty", 0U),
          .is_running = is("is_running"),
          .is_member = is("is_member"),
          .is_given_up = is("is_given_up"),
          .is_linked = is("is_linked"),
          .is_leaving = is("is_leaving"),
          .is_own = is("is_own"),
          .is_base = is("is_base"),
          .is_replaced = is("is_replaced"),
          .needs_machine = is("needs_machine")};
}

/// Of an action that names a machine.
template <class Action>
std::string id_of(const Action& action) {
  if constexpr (requires { action.id; })
    return action.id;
  else
    return {};
}

/// A file that names machines says of which hosts they are.
void know(JobWish& wish, const MarksFile& marks) {
  for (auto& [name, host] : wish.hosts) host.needs_machine = !host.is_own && marks.knows_host(name);
}

}  // namespace

std::string our_provider(std::string_view name) {
  return fmt::format("{}/../lib/dtlaunch/providers/{}.py", io::program_folder().string(), name);
}

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
    if (const auto at = value.find("resize"); at != value.end())
      wish.resize = {.id = at->at("id").get<std::int64_t>(),
                     .grows = at->at("grows").get<bool>(),
                     .count = at->at("count").get<std::uint64_t>(),
                     .host = at->at("host").get<std::string>()};
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
  const auto executor = co_await io::asio::this_coro::executor;
  switch (word_.kind) {
    case FleetWord::Kind::kSlurm:
      provider_ = slurm_provider(job_);
      break;
    case FleetWord::Kind::kCommand:
      provider_ = command_provider(word_.words, folder_);
      break;
    case FleetWord::Kind::kProgram:
      if (!word_.ours.empty())
        word_.words = fmt::format("python3 '{}' {}", our_provider(word_.ours), word_.words);
      provider_ = program_provider(executor, word_.words, folder_, job_);
      break;
  }
  if (provider_->needs_marks_file()) {
    auto marks = MarksFile::open(job_dir_, job_);
    if (!marks) co_return tl::unexpected(marks.error());
    marks_ = std::move(*marks);
    if (!marks_->loss().empty()) tell(marks_->loss());
  }
  auto served = co_await serve();
  co_await provider_->stop();
  co_return served;
}

awaitable<Result<void>> FleetRun::serve() {
  Duration wait{};
  for (int failures = 0;;) {
    auto looked = co_await look(wait);
    if (looked && *looked) co_return Result<void>();
    if (!looked) {
      client_.reset();
      const auto pointer = io::read_job_pointer(job_dir_);
      if (!pointer) co_return tl::unexpected(pointer.error());
      const bool is_over = pointer->ended || pointer->job != job_;
      if (is_over && (co_await provider_->give_all_back() || ++failures == kTries))
        co_return Result<void>();
    }
    wait = pace_.after(found_, provider_->longest_pause());
    if (!looked) co_await io::sleep_for(wait);
  }
}

awaitable<Result<void>> FleetRun::connect() {
  if (client_) co_return Result<void>();
  const auto pointer = io::read_job_pointer(job_dir_);
  if (!pointer) co_return tl::unexpected(pointer.error());
  if (pointer->ended || pointer->job != job_)
    co_return fail(ErrorKind::kUnavailable, "the job has ended");
  auto client = co_await io::ControlClient::connect(pointer->socket);
  if (!client) co_return tl::unexpected(client.error());
  client_ = std::move(*client);
  seen_ = 0;
  co_return Result<void>();
}

awaitable<Result<bool>> FleetRun::look(Duration wait) {
  found_ = Look::kQuiet;
  if (const auto connected = co_await connect(); !connected)
    co_return tl::unexpected(connected.error());
  const auto waited = co_await next_wish(wait);
  if (!waited) co_return tl::unexpected(waited.error());
  if (waited->number != std::exchange(seen_, waited->number)) found_ = Look::kNews;
  if (waited->may_rest) co_return true;
  if (is_over(waited->job)) co_return true;
  // News may come quickly; a provider is asked once a second at most.
  co_await io::sleep_for(listed_at_ + kSoon - io::steady_now());
  listed_at_ = io::steady_now();
  std::vector<Machine> known;
  if (marks_) known = marks_->known();
  auto listed = co_await provider_->list(std::move(known));
  trouble_ = listed ? std::string() : listed.error().message;
  if (!listed && waited->resize) {
    resized_ = waited->resize->id;
    resize_said_ = tl::unexpected(listed.error());
  }
  if (!listed) found_ = Look::kTrouble;
  // The job ends, and the provider has not once shown its machines: there may be none to wait for.
  if (!listed) co_return waited->job.lets_go && !has_listed_;
  has_listed_ = true;
  if (is_over(waited->job)) co_return true;
  // The wish is to be newer than the list: a host that is in it was added for a machine of the
  // list.
  auto wish = co_await ask_wish(kAtOnce);
  if (!wish) co_return tl::unexpected(wish.error());
  if (marks_) {
    marks_->apply(*listed);
    know(wish->job, *marks_);
  }
  if (wish->resize && wish->resize->id != resized_) {
    resize_said_ = co_await do_resize(*wish->resize, wish->job, *listed);
    resized_ = wish->resize->id;
    found_ = Look::kNews;
  }
  auto actions = memory_.look(std::move(*listed), wish->job, provider_->rules());
  if (memory_.is_changed()) found_ = Look::kNews;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const FleetAction action = actions[i];
    const auto done = co_await act(action, *wish);
    if (!done && done.error().kind == ErrorKind::kClosed) co_return tl::unexpected(done.error());
    if (!done) {
      trouble_ = done.error().message;
      found_ = Look::kTrouble;
      continue;
    }
    if (!memory_.is_repeated(action)) found_ = Look::kNews;
    memory_.note_done(action);
    const auto* add = std::get_if<AddHost>(&action);
    // Unmarked, a machine whose line a person takes out at once would be added again.
    const bool is_there = add && co_await is_in_force(add->host);
    if (is_there) actions.emplace_back(SetMark{add->id, Mark::kAddQueued});
  }
  const bool is_empty = std::ranges::all_of(memory_.machines(), [](const Machine& machine) {
    return machine.state == MachineState::kEnding;
  });
  co_return wish->job.lets_go&& is_empty;
}

awaitable<Result<FleetWish>> FleetRun::next_wish(Duration wait) {
  const bool has_hints = provider_->hints() != Provider::Hints::kNever;
  for (;;) {
    const Duration slice = has_hints ? std::min(wait, kSoon) : wait;
    auto wish = co_await ask_wish(slice);
    wait -= slice;
    const bool is_news = !wish || wish->number != seen_ || wish->may_rest;
    if (is_news || wait <= Duration{} || provider_->hints() == Provider::Hints::kNew)
      co_return wish;
  }
}

awaitable<Result<FleetWish>> FleetRun::ask_wish(Duration wait) {
  json report{{"provider", provider_->name()},
              {"text", provider_->text(memory_.machines())},
              {"trouble", trouble_}};
  std::uint64_t asked = 0;
  for (const Machine& machine : memory_.machines())
    if (machine.state == MachineState::kPending && !machine.is_asked) asked += machine.slots;
  report.update({{"news", std::exchange(news_, {})}, {"asked", asked}, {"resized", resized_}});
  if (resize_said_)
    report["resize_said"] = *resize_said_;
  else
    report["resize_error"] = resize_said_.error().message;
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

awaitable<bool> FleetRun::is_in_force(std::string host) {
  for (const Time until = io::steady_now() + kInForce; io::steady_now() < until;) {
    const auto wish = co_await ask_wish(kSoon);
    if (!wish) break;
    seen_ = wish->number;
    if (value_in(wish->job.hosts, host).in_file > 0) co_return true;
  }
  co_return false;
}

awaitable<Result<std::string>> FleetRun::do_resize(Resize resize, const JobWish& job,
                                                   std::vector<Machine>& listed) {
  const std::string name = provider_->name();
  const bool is_begun = marks_->resize().id == resize.id;
  if (resize.grows) {
    const auto wished = provider_->wished();
    if (!wished)
      co_return fail(ErrorKind::kInvalid,
                     "{} alone says which machines there are (dtctl add HOST adds others)", name);
    if (!is_begun)
      if (const auto noted = marks_->begin_resize({resize.id, *wished, *wished + resize.count}, {});
          !noted)
        co_return tl::unexpected(noted.error());
    co_return co_await provider_->grow(marks_->resize().from, marks_->resize().to);
  }
  if (is_begun) co_return marks_->resize().said;
  const auto asked = to_be_asked(resize, job, listed);
  if (!asked) co_return tl::unexpected(asked.error());
  std::vector<std::string> hosts;
  for (Machine& machine : listed) {
    if (std::ranges::find(*asked, machine.id, &Machine::id) == asked->end()) continue;
    machine.is_asked = true;
    hosts.push_back(machine.host.empty() ? machine.id : machine.host);
  }
  std::string said = fmt::format("{}: workers there leave at the next epoch, then {} gets {} back",
                                 fmt::join(hosts, ", "), name, hosts.size() == 1 ? "it" : "them");
  if (const auto noted = marks_->begin_resize({.id = resize.id, .said = said}, *asked); !noted)
    co_return tl::unexpected(noted.error());
  co_return said;
}

Result<std::vector<Machine>> FleetRun::to_be_asked(const Resize& resize, const JobWish& job,
                                                   const std::vector<Machine>& listed) const {
  const std::string name = provider_->name();
  if (!provider_->can_let_go())
    return fail(ErrorKind::kInvalid, "{} takes no machine back: dtctl remove HOST", name);
  std::vector<Machine> all = listed;
  std::erase_if(all, [&](const Machine& machine) {
    return machine.is_asked || machine.mark == Mark::kBase ||
           value_in(job.hosts, machine.host).is_own ||
           (!resize.host.empty() && machine.host != resize.host);
  });
  std::vector<Machine> chosen =
      newest_machines(all, resize.host.empty() ? resize.count : all.size());
  if (!resize.host.empty() && chosen.empty())
    return fail(ErrorKind::kInvalid, "{} is no machine of {} that could go: dtctl remove {}",
                resize.host, name, resize.host);
  if (resize.host.empty() && chosen.size() < resize.count)
    return fail(ErrorKind::kInvalid, "{} has {} machines that could go, not {} (dtctl remove HOST)",
                name, chosen.size(), resize.count);
  return chosen;
}

awaitable<Result<void>> FleetRun::request(json what) {
  what["control"] = io::kControlVersion;
  const auto reply =
      co_await client_->ask(what.dump(-1, ' ', false, json::error_handler_t::replace));
  if (!reply) co_return tl::unexpected(reply.error());
  const json answer = json::parse(*reply, nullptr, false);
  if (!answer.is_object() || !answer.value("ok", false))
    co_return fail(ErrorKind::kDenied, "{} {}: {}", what.value("op", ""), what.value("host", ""),
                   answer.is_object() ? answer.value("error", "refused") : "no answer");
  co_return Result<void>();
}

awaitable<Result<void>> FleetRun::act(FleetAction action, const FleetWish& wish) {
  const std::string name = provider_->name();
  Machine machine;
  Result<void> done;
  if (const auto* add = std::get_if<AddHost>(&action)) {
    json what{{"op", "add"},
              {"host", provider_->line_of(add->host)},
              {"slots", add->slots},
              {"unless_there", true}};
    done = co_await request(std::move(what));
    machine = memory_.machine(add->id);
    if (done) tell(fmt::format("{} has {}: it is added", name, add->host));
  } else if (const auto* leave = std::get_if<Leave>(&action)) {
    json what{{"op", "leave"}, {"host", leave->host}, {"why", name + " takes it away"}};
    if (leave->deadline)
      what["deadline_s"] =
          std::max(0.0, *leave->deadline - static_cast<double>(io::wall_now()) / 1e9);
    done = co_await request(std::move(what));
    if (done) tell(fmt::format("{} takes {} away: its workers leave", name, leave->host));
  } else if (const auto* drop = std::get_if<DropHost>(&action)) {
    json what{{"op", "remove"}, {"host", drop->host}, {"machine_is_gone", drop->machine_is_gone}};
    done = co_await request(std::move(what));
    if (done)
      tell(fmt::format("{} has {} no more: its lines are taken out of host_worker", name,
                       drop->host));
  } else {
    machine = memory_.machine(std::visit([](const auto& what) { return id_of(what); }, action));
    auto news = co_await provider_->act(action, machine, wish.order);
    if (!news) co_return tl::unexpected(news.error());
    if (!news->empty() && !memory_.is_repeated(action)) tell(std::move(*news));
  }
  if (done && marks_) done = marks_->note_done(action, std::move(machine));
  co_return done;
}

}  // namespace dt::supervisor
