#include "core/preflight/judge.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "core/files/ranges.h"

namespace dt::preflight {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr double kClockWarns = 0.5;  ///< Seconds.
constexpr double kClockFails = 60;
constexpr double kSlowShare = 1.0 / 3;
constexpr std::uint32_t kStaleUs = 1'000'000;
constexpr std::uint64_t kFilesPerHost = 4;
constexpr std::uint64_t kFilesBeside = 256;

class Judge {
 public:
  explicit Judge(const Findings& findings) : all_(findings) {
    for (const HostFindings& host : findings.hosts) {
      verdict_.hosts.push_back(host.host);
      verdict_.marks.emplace_back();
      verdict_.speeds.emplace_back();
    }
  }

  Verdict run() {
    for (std::size_t i = 0; i < all_.hosts.size(); ++i) {
      good(i, Row::kReach);
      if (const auto& why = all_.hosts[i].unreachable)
        remark(i, Row::kReach, Mark::kFail, why->message,
               "see that this host is up and can be logged in to, or leave it out");
    }
    judge_commands();
    for (std::size_t i = 0; i < all_.hosts.size(); ++i) judge_volume(i);
    for (std::size_t i = 0; i < all_.hosts.size(); ++i) judge_clock(i);
    for (std::size_t i = 0; i < all_.hosts.size(); ++i) judge_machine(i);
    judge_cores();
    judge_gpus();
    judge_ways();
    judge_speeds();
    return std::move(verdict_);
  }

 private:
  void good(std::size_t host, Row row) {
    Mark& mark = verdict_.marks[host][static_cast<std::size_t>(row)];
    mark = std::max(mark, Mark::kOk);
  }
  void remark(std::size_t host, Row row, Mark mark, std::string what, std::string remedy) {
    Mark& worst = verdict_.marks[host][static_cast<std::size_t>(row)];
    worst = std::max(worst, mark);
    verdict_.remarks.push_back({host, row, mark, std::move(what), std::move(remedy)});
  }
  /// The facts, if there are any; a remark if the host did not answer.
  template <class Facts>
  const Facts* facts(std::size_t host, Row row, const Found<Facts>& found) {
    if (!found) return nullptr;
    good(host, row);
    if (*found) return &**found;
    remark(host, row, Mark::kFail, found->error().message,
           "something there does not answer: try it by hand on this host");
    return nullptr;
  }

  /// A remark for each host whose value is not that of most hosts; of the first where that is
  /// undecided. Returns whether they differ.
  bool judge_kinds(Row row, Mark mark, const std::string& subject,
                   const std::vector<std::pair<std::size_t, std::string>>& values,
                   const std::string& remedy) {
    std::vector<std::pair<std::string, std::vector<std::size_t>>> kinds;
    for (const auto& [host, value] : values) {
      const auto same = [&value](const auto& kind) { return kind.first == value; };
      auto at = std::ranges::find_if(kinds, same);
      if (at == kinds.end()) at = kinds.insert(kinds.end(), {value, {}});
      at->second.push_back(host);
    }
    if (kinds.size() < 2) return false;
    const auto hosts_of = [](const auto& kind) { return kind.second.size(); };
    const std::string usual = std::ranges::max_element(kinds, {}, hosts_of)->first;
    std::vector<std::string> parts;
    for (const auto& [value, hosts] : kinds)
      parts.push_back(fmt::format("{} {}", verdict_.in_words(hosts), value));
    const std::string what =
        fmt::format("{}: {} kinds: {}", subject, kinds.size(), fmt::join(parts, ", "));
    for (const auto& [host, value] : values)
      if (value != usual) remark(host, row, mark, what, remedy);
    return true;
  }

  void judge_commands();
  void judge_files(const std::vector<const CommandFacts*>& found);
  void judge_volume(std::size_t host);
  /// What to do where a host does not have the folder that is here.
  [[nodiscard]] std::string shared_remedy() const;
  void judge_clock(std::size_t host);
  void judge_machine(std::size_t host);
  void judge_cores();
  void judge_gpus();
  void judge_ways();
  void judge_speeds();

  const Findings& all_;
  Verdict verdict_;
};

void Judge::judge_commands() {
  std::vector<const CommandFacts*> found(all_.hosts.size());
  std::vector<std::pair<std::size_t, std::string>> versions;
  std::vector<std::pair<std::size_t, std::string>> hashes;
  bool has_version = false;
  for (std::size_t i = 0; i < all_.hosts.size(); ++i) {
    const CommandFacts* said = found[i] = facts(i, Row::kCommand, all_.hosts[i].command);
    if (said == nullptr || all_.command.empty()) continue;
    if (said->path.empty()) {
      remark(i, Row::kCommand, Mark::kFail, said->why,
             "install it there, put it on the shared volume, or give its full path");
      continue;
    }
    if (!all_.program.empty() && said->path != all_.program)
      remark(i, Row::kCommand, Mark::kWarn,
             fmt::format("{} is {} here and {} there", all_.command, all_.program, said->path),
             kActivatedRemedy);
    has_version = has_version || !said->version.empty();
    versions.emplace_back(i, said->version.empty() ? "(no version)" : said->version);
    if (!said->sha256.empty()) hashes.emplace_back(i, said->sha256.substr(0, 12));
  }
  const bool differ = has_version && judge_kinds(Row::kCommand, Mark::kFail, all_.command, versions,
                                                 "install the same version on all hosts");
  // Builds of one version may come from different distributions.
  if (!differ)
    judge_kinds(Row::kCommand, has_version ? Mark::kWarn : Mark::kFail, all_.command, hashes,
                "copy the same file to all hosts (these are SHA-256 sums)");
  judge_files(found);
}

void Judge::judge_files(const std::vector<const CommandFacts*>& found) {
  std::vector<std::string> names;
  for (const CommandFacts* said : found)
    for (const FileFacts& file : said == nullptr ? std::vector<FileFacts>() : said->files)
      if (std::ranges::find(names, file.name) == names.end()) names.push_back(file.name);
  for (const std::string& name : names) {
    std::vector<std::pair<std::size_t, std::string>> hashes;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i] == nullptr) continue;
      for (const FileFacts& file : found[i]->files) {
        if (file.name != name) continue;
        if (file.sha256.empty())
          remark(i, Row::kCommand, Mark::kFail, file.why,
                 "copy it there, or put it on the shared volume");
        else
          hashes.emplace_back(i, file.sha256.substr(0, 12));
      }
    }
    judge_kinds(Row::kCommand, Mark::kFail, name, hashes,
                "copy the same file to all hosts (these are SHA-256 sums)");
  }
}

std::string Judge::shared_remedy() const {
  const std::string& mount = all_.mount;
  const bool is_own = (mount.starts_with("/dev/") && !mount.ends_with("gpfs")) ||
                      mount.ends_with("tmpfs") || mount.ends_with("overlay");
  if (!is_own) return fmt::format("mount there what is here: {}", mount);
  return fmt::format(
      "here it is on this machine's own disk ({}): start the job in a folder on a "
      "volume of all hosts, or --sync-dst-dir, or --no-shared-folder",
      mount);
}

void Judge::judge_volume(std::size_t i) {
  const HostFindings& host = all_.hosts[i];
  const VolumeFacts* said = facts(i, Row::kVolume, host.volume);
  if (said == nullptr) return;
  const auto tell = [&](Mark mark, std::string_view what, std::string remedy) {
    remark(i, Row::kVolume, mark, fmt::format("{}: {}", all_.folder, what), std::move(remedy));
  };
  const Mark bad = all_.needs_volume ? Mark::kFail : Mark::kWarn;
  switch (said->state) {
    case VolumeState::kGood:
      break;
    case VolumeState::kMissing:
      return tell(bad, "not mounted: there is no such folder", shared_remedy());
    case VolumeState::kOther:
      if (said->mount == all_.mount)
        return tell(
            bad,
            fmt::format("stale: what was written here is not seen after 5 s ({})", said->mount),
            "mount it with a shorter cache time (NFS: actimeo), or mount it again");
      return tell(bad, fmt::format("another folder: {} there, {} here", said->mount, all_.mount),
                  shared_remedy());
    case VolumeState::kReadOnly:
      return tell(bad, fmt::format("read-only ({})", said->mount),
                  "mount it for writing, and export it so");
    case VolumeState::kDenied:
      return tell(bad, "this user may not write there: " + said->why,
                  "use the same user id on all hosts; NFS: see root_squash");
    case VolumeState::kFailed:
      return tell(bad, said->why, "write a file there by hand on this host");
  }
  if (!host.unseen.empty())
    return tell(bad, "what this host writes is not seen here: " + host.unseen,
                "mount it with a shorter cache time (NFS: actimeo), or see where it is mounted");
  if (host.squashed_to)
    tell(Mark::kWarn,
         fmt::format("files of this host belong to user {} (squashed)", *host.squashed_to),
         "export it with no_root_squash, or run as a user that all hosts have");
  if (said->read_us > kStaleUs)
    tell(Mark::kWarn,
         fmt::format("what was written here is seen after {:.1f} s only", said->read_us / 1e6),
         "mount it with a shorter cache time (NFS: actimeo)");
}

void Judge::judge_clock(std::size_t i) {
  const ClockFacts* said = facts(i, Row::kClock, all_.hosts[i].clock);
  if (said == nullptr) return;
  const double surely = std::abs(said->offset_s) - said->error_s;
  if (surely <= kClockWarns) return;
  remark(i, Row::kClock, surely > kClockFails ? Mark::kFail : Mark::kWarn,
         fmt::format("its clock is {:+.1f} s off (within {:.3f} s)", said->offset_s, said->error_s),
         "set it, and run a time service there (chrony, systemd-timesyncd)");
}

void Judge::judge_machine(std::size_t i) {
  const MachineFacts* said = facts(i, Row::kMachine, all_.hosts[i].machine);
  if (said == nullptr) return;
  const auto room = [&](const char* what, std::uint64_t bytes, std::uint64_t fails,
                        std::uint64_t warns, const char* remedy) {
    if (bytes < warns)
      remark(i, Row::kMachine, bytes < fails ? Mark::kFail : Mark::kWarn,
             fmt::format("{}: {} MiB are left", what, bytes / kMiB), remedy);
  };
  room("memory", said->memory_free, 64 * kMiB, 256 * kMiB,
       "end what runs there, or raise the limit of its cgroup");
  room("/dev/shm", said->shm_free, kMiB, 32 * kMiB,
       "remove what is left there, or make it larger (containers: --shm-size)");
  room(said->runtime_folder.c_str(), said->runtime_free, kMiB, 4 * kMiB, "make room there");
  const std::uint64_t files = kFilesBeside + kFilesPerHost * all_.hosts.size();
  if (said->open_files != 0 && said->open_files < files)
    remark(i, Row::kMachine, Mark::kFail,
           fmt::format("open files: the hard limit is {}, {} are needed", said->open_files, files),
           "raise nofile in /etc/security/limits.conf");
  constexpr std::uint64_t kFewProcesses = 64;
  if (said->processes_left != 0 && said->processes_left < kFewProcesses)
    remark(i, Row::kMachine, Mark::kFail,
           fmt::format("processes: its cgroup has room for {}", said->processes_left),
           "raise pids.max of its cgroup (containers: --pids-limit)");
}

void Judge::judge_cores() {
  std::vector<std::pair<std::size_t, std::string>> cores;
  for (std::size_t i = 0; i < all_.hosts.size(); ++i)
    if (const auto& machine = all_.hosts[i].machine; machine && *machine)
      cores.emplace_back(i, std::to_string((*machine)->cores));
  judge_kinds(Row::kMachine, Mark::kWarn, "cores", cores,
              "the slowest worker sets the pace: see limits of containers and cpusets");
}

void Judge::judge_gpus() {
  std::vector<std::pair<std::size_t, std::string>> models;
  std::vector<std::pair<std::size_t, std::string>> drivers;
  bool has_any = false;
  for (const HostFindings& host : all_.hosts)
    has_any = has_any || (host.gpus && (!*host.gpus || !(*host.gpus)->names.empty() ||
                                        !(*host.gpus)->troubles.empty()));
  if (!has_any) return;
  for (std::size_t i = 0; i < all_.hosts.size(); ++i) {
    const GpuFacts* said = facts(i, Row::kGpus, all_.hosts[i].gpus);
    if (said == nullptr) continue;
    for (const std::string& trouble : said->troubles)
      remark(i, Row::kGpus, Mark::kFail, trouble, "reset or replace it, or leave the host out");
    std::vector<std::string> kinds;
    for (std::size_t at = 0; at < said->names.size();) {
      std::size_t end = at;
      while (end < said->names.size() && said->names[end] == said->names[at]) ++end;
      kinds.push_back(fmt::format("{} x {}", end - at, said->names[at]));
      at = end;
    }
    models.emplace_back(i, kinds.empty() ? "none" : fmt::format("{}", fmt::join(kinds, " + ")));
    if (!said->driver.empty()) drivers.emplace_back(i, said->driver);
  }
  judge_kinds(Row::kGpus, Mark::kFail, "GPUs", models,
              "a GPU may have fallen off its bus (dmesg: Xid 79); else leave the host out");
  judge_kinds(Row::kGpus, Mark::kWarn, "GPU driver", drivers, "install the same on all hosts");
}

void Judge::judge_ways() {
  for (std::size_t i = 0; i < all_.hosts.size(); ++i) {
    const Listening* said = facts(i, Row::kNetwork, all_.hosts[i].listening);
    if (said != nullptr && !said->why.empty())
      remark(i, Row::kNetwork, Mark::kFail, said->why,
             "choose another --server-port or --interface");
  }
  // A place that nobody reaches is the fault of its host.
  std::map<std::pair<std::size_t, std::uint16_t>, std::pair<std::size_t, std::size_t>> tries;
  for (const Way& way : all_.ways) {
    auto& [all, failed] = tries[{way.to, way.port}];
    ++all;
    failed += way.why_not.empty() ? 0 : 1;
  }
  std::set<std::pair<std::size_t, std::uint16_t>> said;
  for (const Way& way : all_.ways) {
    good(way.from, Row::kNetwork);
    good(way.to, Row::kNetwork);
    if (way.why_not.empty()) continue;
    const auto& [all, failed] = tries[{way.to, way.port}];
    const bool is_by_none = all > 1 && failed == all;
    if (is_by_none && !said.insert({way.to, way.port}).second) continue;
    remark(
        is_by_none ? way.to : way.from, Row::kNetwork, Mark::kFail,
        is_by_none ? fmt::format("none of {} hosts reaches it at {} port {}: {}", all, way.address,
                                 way.port, way.why_not)
                   : fmt::format("from {} to {} ({}) port {}: {}", all_.hosts[way.from].host,
                                 all_.hosts[way.to].host, way.address, way.port, way.why_not),
        "let the port through the firewalls of both hosts, or give --interface or --server-port");
  }
}

void Judge::judge_speeds() {
  std::map<std::size_t, std::vector<const Speed*>> of;  // a host's pairs, the better one first
  for (const Speed& speed : all_.speeds) {
    for (const std::size_t host : {speed.from, speed.to}) {
      good(host, Row::kSpeed);
      auto& own = of[host];
      const bool is_better = own.empty() || speed.bytes_per_second > own.front()->bytes_per_second;
      if (speed.why.empty()) own.insert(is_better ? own.begin() : own.end(), &speed);
    }
    if (!speed.why.empty())
      remark(speed.from, Row::kSpeed, Mark::kFail,
             fmt::format("to {}: {}", all_.hosts[speed.to].host, speed.why),
             "see the network's row");
  }
  std::vector<double> better;
  for (const auto& [host, own] : of) {
    if (own.empty()) continue;
    verdict_.speeds[host] = *own.front();
    better.push_back(own.front()->bytes_per_second);
  }
  if (better.empty() || better.size() * 2 < of.size()) return;
  std::ranges::sort(better);
  const double usual = better[better.size() / 2];
  const auto is_slow = [usual](const Speed& speed) {
    return speed.bytes_per_second < usual * kSlowShare;
  };
  const auto is_bad = [&](std::size_t host) {
    return of[host].size() > 1 && is_slow(*of[host].front());
  };
  for (const Speed& speed : all_.speeds) {
    if (!speed.why.empty() || !is_slow(speed)) continue;
    const bool is_known = is_bad(speed.from) || is_bad(speed.to);
    for (const std::size_t host : {speed.from, speed.to})
      if (is_bad(host) || !is_known)
        remark(host, Row::kSpeed, is_known ? Mark::kFail : Mark::kWarn,
               fmt::format("slow between {} and {}: {}; the median is {}",
                           all_.hosts[speed.from].host, all_.hosts[speed.to].host,
                           rate_text(speed.bytes_per_second), rate_text(usual)),
               "see the speed of its network interface (ethtool), its cable and its switch port");
  }
}

}  // namespace

const char* to_text(Row row) {
  constexpr std::array kNames = {"reach",   "command", "volume",  "clock",
                                 "machine", "gpus",    "network", "speed"};
  return kNames[static_cast<std::size_t>(row)];
}

const char* to_text(Mark mark) {
  constexpr std::array kNames = {"-", "OK", "WARN", "FAIL"};
  return kNames[static_cast<std::size_t>(mark)];
}

std::string rate_text(double bytes_per_second) {
  const bool is_fast = bytes_per_second >= 1e9;
  return fmt::format("{:.1f} {}B/s", bytes_per_second / (is_fast ? 1e9 : 1e6), is_fast ? 'G' : 'M');
}

bool Verdict::has_failed(std::size_t host) const {
  return std::ranges::find(marks[host], Mark::kFail) != marks[host].end();
}

bool Verdict::has_failed() const {
  return std::ranges::any_of(
      marks, [](const auto& row) { return std::ranges::count(row, Mark::kFail) > 0; });
}

bool Verdict::has_unreachable() const {
  return std::ranges::any_of(marks, [](const auto& row) {
    return row[static_cast<std::size_t>(Row::kReach)] == Mark::kFail;
  });
}

std::string Verdict::in_words(const std::vector<std::size_t>& places) const {
  std::vector<Host> all;
  for (const std::size_t i : places) all.push_back(hosts[i]);
  return in_few_words(std::move(all));
}

Verdict judge(const Findings& findings) { return Judge(findings).run(); }

}  // namespace dt::preflight
