#include <algorithm>

#include "core/base/number.h"
#include "core/files/hosts.h"
#include "core/fleet/fleet_plan.h"
#include "io/job/control_protocol.h"
#include "io/line_prefixer.h"
#include "io/subprocess.h"
#include "supervisor/dtctl/commands.h"
#include "supervisor/dtctl/connection.h"
#include "supervisor/fleet/slurm_queue.h"

namespace dt::supervisor::ctl {

using nlohmann::json;

namespace {

constexpr std::uint32_t kMostNodes = 10'000;
constexpr std::string_view kSlurm = "Slurm";
constexpr Duration kResizeLimit = std::chrono::seconds(35);  ///< The supervisor's is 30 s.

/// Before anything is asked for.
void need_slurm(const std::string& command, const std::string& program) {
  if (io::in_path(program)) return;
  throw Failed{{ErrorKind::kUnavailable,
                fmt::format("{}: {} is not in PATH: it is for jobs where Slurm has the machines "
                            "(Debian's package slurm-client); elsewhere: dtctl {}",
                            command, program, command == "grow" ? "add HOST" : "remove HOST")},
               kExitFailure};
}

std::uint32_t count_of(const std::string& word, const char* command) {
  const auto count = parse_number<std::uint32_t>(word);
  if (!count || *count == 0 || *count > kMostNodes)
    throw Usage{fmt::format("{}: \"{}\" is no number of nodes: 1 to {}", command,
                            io::printable(word), kMostNodes)};
  return *count;
}

/// The job's holders. One whose host is in host_worker has joined, though its comment may not say
/// so yet.
io::awaitable<std::vector<Machine>> holders_now(const Connected& to, const SlurmQueue& queue) {
  std::vector<Machine> holders = need(queue.list());
  const json status = json::parse(need_reply(co_await ask(to, "status")));
  const json& in_file = status.at("file").at("accepted");
  for (Machine& holder : holders)
    if (std::ranges::find(in_file, json(holder.host)) != in_file.end()) holder.mark = Mark::kAdded;
  co_return holders;
}

Machine without_keep(Machine holder) {
  holder.kept.reset();
  return holder;
}

/// Asks the provider of a job with --fleet, and prints what it says: true. A job that may have
/// Slurm's nodes: false.
io::awaitable<bool> ask_provider(const Connected& to, const Arguments& args, json request) {
  const json status = json::parse(need_reply(co_await ask(to, "status")));
  const auto fleet = status.find("fleet");
  if (fleet == status.end() || !fleet->is_object() || fleet->value("provider", "") == kSlurm)
    co_return false;
  if (args.words.size() > 1 || args.keep)
    throw Usage{
        fmt::format("{}: --keep, slots= and words for sbatch are for Slurm, and the job has {}",
                    args.command, fleet->value("provider", ""))};
  request["control"] = io::kControlVersion;
  const json reply =
      json::parse(need_reply(co_await ask(to, args.command, std::move(request), kResizeLimit)));
  fmt::print("{}\n", io::printable(reply.value("said", "")));
  co_return true;
}

/// Takes the host out of the job; its holder ends when its workers have left.
io::awaitable<void> let_host_go(const Connected& to, const std::string& host) {
  json request{{"host", host}, {"control", io::kControlVersion}};
  need_reply(co_await ask(to, "remove", std::move(request), kEditLimit));
  fmt::print("{} leaves at the next epoch; then its node is given back\n", io::printable(host));
}

}  // namespace

io::awaitable<int> grow(Arguments args) {
  if (args.words.empty()) throw wrong_words(args);
  constexpr std::string_view kSlots = "slots=";
  const std::uint32_t nodes = count_of(args.words[0], "grow");
  HolderOrder order;
  auto words = args.words.begin() + 1;
  if (words != args.words.end() && words->starts_with(kSlots))
    order.slots = count_of((words++)->substr(kSlots.size()), "grow: slots");
  order.words.assign(words, args.words.end());
  order.is_kept = args.keep;
  const Connected to = need(co_await connect(args), kExitNoJob);
  json wish{{"slots", nodes}};
  if (co_await ask_provider(to, args, std::move(wish))) co_return kExitOk;
  need_slurm("grow", "sbatch");
  order.job = to.job.job;
  const SlurmQueue queue(order.job);
  std::uint32_t asked = 0;
  for (const Machine& holder : co_await holders_now(to, queue))
    if (holder.mark == Mark::kNone && holder.state != MachineState::kEnding) asked += holder.slots;
  json request{{"slots", std::uint64_t{nodes} * order.slots},
               {"asked", asked},
               {"control", io::kControlVersion}};
  const json answer = json::parse(need_reply(co_await ask(to, "grow", std::move(request))));
  order.log = answer.at("log").get<std::string>();
  order.agent = answer.at("agent").get<std::string>();
  order.excluded = answer.at("excluded").get<std::vector<std::string>>();
  std::vector<std::string> ids;
  Result<std::string> id;
  while (ids.size() < nodes && (id = queue.submit(order))) ids.push_back(std::move(*id));
  if (!ids.empty())
    fmt::print("asked for {} node{}, Slurm job{} {}: {} when Slurm has {} (dtctl status)\n",
               ids.size(), ids.size() == 1 ? "" : "s", ids.size() == 1 ? "" : "s",
               io::printable(fmt::format("{}", fmt::join(ids, ", "))),
               ids.size() == 1 ? "it joins" : "they join", ids.size() == 1 ? "it" : "them");
  need(std::move(id));
  co_return kExitOk;
}

io::awaitable<int> shrink(Arguments args) {
  if (args.words.size() > 1) throw wrong_words(args);
  const std::string word = args.words.empty() ? "1" : args.words[0];
  const bool is_count = word.find_first_not_of("0123456789") == word.npos;
  const std::uint32_t count = is_count ? count_of(word, "shrink") : 1;
  if (!is_count) need(parse_hosts(word, "shrink"), kExitUsage);
  const Connected to = need(co_await connect(args), kExitNoJob);
  json wish{{"slots", count}};
  if (!is_count) wish["host"] = word;
  if (co_await ask_provider(to, args, std::move(wish))) co_return kExitOk;
  need_slurm("shrink", "scancel");
  const SlurmQueue queue(to.job.job);
  const std::vector<Machine> holders = co_await holders_now(to, queue);
  if (!is_count) {
    bool is_held = false;
    for (const Machine& holder : holders) {
      if (holder.host != word || holder.state != MachineState::kReady) continue;
      is_held = true;
      if (holder.mark != Mark::kNone) need(queue.mark(without_keep(holder)));
    }
    co_await let_host_go(to, word);  // of a host of the initial launch the supervisor says why not
    if (!is_held) fmt::print("no Slurm job of dtctl grow holds {}\n", io::printable(word));
    co_return kExitOk;
  }
  const std::vector<Machine> chosen = newest_machines(holders, count);
  for (const Machine& holder : chosen) {
    if (holder.state == MachineState::kPending) {
      need(queue.cancel_pending(holder.id));
      fmt::print("Slurm job {} is taken out of the queue\n", holder.id);
    } else if (holder.mark != Mark::kNone) {
      // A dtfleet that was killed before it could would take the node for a new one.
      need(queue.mark(without_keep(holder)));
      co_await let_host_go(to, holder.host);
    } else {
      need(queue.cancel(holder.id));
      fmt::print("Slurm job {} ({}) is given back\n", holder.id, io::printable(holder.host));
    }
  }
  if (chosen.size() < count)
    throw Failed{{ErrorKind::kInvalid,
                  fmt::format("shrink {}: dtctl grow holds {} nodes (other hosts: dtctl remove "
                              "HOST)",
                              count, chosen.size())},
                 kExitFailure};
  co_return kExitOk;
}

}  // namespace dt::supervisor::ctl
