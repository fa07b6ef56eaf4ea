#include "supervisor/dtctl/hosts_choice.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "io/job/job_flags.h"
#include "io/subprocess.h"
#include "launcher/last_job.h"
#include "launcher/placement/allocation_probe.h"
#include "launcher/placement/hosts_file.h"
#include "launcher/placement/placement.h"
#include "supervisor/dtctl/command.h"

namespace dt::supervisor {
namespace {

io::Words launchers() {
  io::Words names;
  for (const StarterKind kind : kStarterKinds) names.emplace_back(to_text(kind));
  return names;
}

/// The lines of -H and -w.
Result<std::vector<HostLine>> named_hosts(const HostsChoice& choice) {
  auto lines = launcher::read_hosts_file(choice.hostfile);
  for (const std::string& words : choice.words) {
    auto more = parse_hosts(launcher::lines_of_words(words), "-w");
    if (!lines) break;
    if (!more) return more;
    lines->insert(lines->end(), more->begin(), more->end());
  }
  return lines;
}

/// As dtlaunch would place workers, where no job says how its hosts are reached.
Result<launcher::Placement> placement_of(const HostsChoice& choice,
                                         const std::vector<HostLine>& named) {
  const bool is_by_words = choice.hostfile.empty() && !choice.words.empty();
  return launcher::find_placement({choice.launcher, is_by_words ? "-w" : choice.hostfile, named},
                                  launcher::surroundings(io::variable));
}

/// What a launcher needs and is not there, before a host is tried.
Result<void> check_launcher(const HostsChoice& choice, bool has_job) {
  const StarterKind kind = choice.spec.launcher;
  if (kind == StarterKind::kCommand && choice.spec.rsh.empty())
    return fail(ErrorKind::kInvalid,
                "--launcher command needs --rsh 'COMMAND': what starts a command on a host?");
  if (!choice.spec.rsh.empty())
    if (const auto words = rsh_words(choice.spec.rsh); !words) return tl::unexpected(words.error());
  if (launcher::is_scheduler(kind) && !choice.spec.allocation && !has_job)
    return tl::unexpected(launcher::no_allocation(kind));
  return {};
}

std::vector<Host> all_hosts(const io::JobSpec& spec) {
  std::vector<Host> all = spec.workers;
  all.insert(all.end(), spec.servers.begin(), spec.servers.end());
  all.insert(all.end(), spec.added.begin(), spec.added.end());
  return all;
}

std::vector<Host> each_once(const std::vector<Host>& hosts) {
  std::vector<Host> once;
  std::set<Host> seen;
  for (const Host& host : hosts)
    if (seen.insert(host).second) once.push_back(host);
  return once;
}

}  // namespace

std::string absolute_folder(const std::string& folder) {
  std::error_code ec;
  std::string path = std::filesystem::absolute(folder, ec).lexically_normal().string();
  if (ec)
    throw ctl::Failed{
        {ErrorKind::kInvalid, "the present folder has been removed: cd into another one"},
        kExitUsage};
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

io::Flags hosts_flags(HostsChoice& choice) {
  // clang-format off
  io::Flags flags = {{"Hosts", {
      {.name = "hostfile", .letter = 'H', .value = "FILE", .to = &choice.hostfile,
       .help = "the hosts, one per line, as dtlaunch has them"},
      {.name = "where", .letter = 'w', .value = "HOSTS", .to = &choice.words,
       .help = "the hosts: a,b,node[01-16]; may be given again"},
      {.name = "launcher", .value = "ssh|local|slurm|sge|mpi|kubernetes|command",
       .to = io::one_of(choice.launcher, launchers()),
       .help = "how they are reached; default: as the folder's job reaches its own, else ssh, or "
           "the starter of the allocation around dtctl"},
  }}};
  // clang-format on
  for (io::FlagGroup& group : io::job_flags(choice.spec)) {
    const std::string_view title = group.title;
    if (title == "ssh" || title == "Other ways to reach hosts") flags.push_back(std::move(group));
  }
  return flags;
}

Result<ChosenHosts> choose_hosts(const std::string& job_dir, const io::Program& program,
                                 const io::Words& words,
                                 const std::function<io::Flags(HostsChoice&)>& flags_of) {
  ChosenHosts chosen;
  HostsChoice choice;
  choice.job_dir = job_dir;
  auto job = launcher::find_last_job(job_dir);
  if (!job && job.error().kind == ErrorKind::kDenied) return tl::unexpected(job.error());
  if (job) {
    choice.spec = std::move(job->spec);
    auto& patience = choice.spec.ssh.connect_timeout;
    patience = std::min<Duration>(patience, HostsChoice::kConnect);
    chosen.job = choice.spec.job;
  }
  const io::Flags flags = flags_of(choice);
  if (auto taken = io::parse(program, flags, words); !taken) return tl::unexpected(taken.error());
  auto named = named_hosts(choice);
  if (!named) return tl::unexpected(named.error());
  const bool is_job_used = job && choice.launcher.empty();
  if (!choice.launcher.empty()) choice.spec.launcher = *starter_kind(choice.launcher);
  if (!choice.spec.rsh.empty() && choice.launcher.empty() && !job)
    choice.spec.launcher = StarterKind::kCommand;
  // A job of this machine alone knows no way to others.
  const auto of_job = all_hosts(choice.spec);
  const auto is_other = [&of_job](const HostLine& line) {
    return std::ranges::find(of_job, line.host) == of_job.end();
  };
  if (is_job_used && io::is_local(choice.spec) && std::ranges::any_of(*named, is_other))
    choice.spec.launcher = StarterKind::kSsh;
  if (!is_job_used) {
    auto placement = placement_of(choice, *named);
    if (!placement) return tl::unexpected(placement.error());
    choice.spec.allocation = placement->remembered;
    if (placement->gives_hosts && !job) *named = std::move(placement->lines);
  }
  if (auto checked = check_launcher(choice, job.has_value()); !checked)
    return tl::unexpected(checked.error());
  *named = with_known_ways(std::move(*named), choice.spec.known_hosts);
  std::vector<Host> hosts;
  for (const HostLine& line : *named) hosts.push_back(line.host);
  const bool is_named = !choice.hostfile.empty() || !choice.words.empty();
  if (hosts.empty() && !is_named && job) hosts = all_hosts(choice.spec);
  if (hosts.empty() && !is_named && choice.launcher == "local") hosts.push_back({"", "localhost"});
  chosen.hosts = each_once(hosts);
  chosen.spec = std::move(choice.spec);
  if (chosen.hosts.empty())
    return fail(ErrorKind::kInvalid, "{}: name hosts with -H FILE or -w HOSTS{}",
                job ? "no hosts" : job.error().message,
                job ? "" : ", or the job's folder with --job-dir");
  return chosen;
}

}  // namespace dt::supervisor
