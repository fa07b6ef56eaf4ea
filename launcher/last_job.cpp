#include "launcher/last_job.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include "core/base/number.h"
#include "core/files/journal.h"
#include "core/job/records.h"
#include "core/job/take_over.h"
#include "core/protocol/exit_code.h"
#include "io/fd.h"
#include "io/job/checkpoint_check.h"
#include "io/job/checkpoint_manifest.h"
#include "io/job/job_owner.h"
#include "io/process_tree.h"
#include "io/read_file.h"
#include "io/volume_answers.h"

namespace dt::launcher {
namespace {

namespace fs = std::filesystem;

/// Between two lines about the progress of a long check.
constexpr auto kFirstWord = std::chrono::seconds(2);
constexpr auto kNextWord = std::chrono::seconds(5);

/// Empty if there is no such file.
Result<std::string> read_if_there(const std::string& path) {
  return io::read_file_if_there(path).map(
      [](std::optional<std::string> text) { return text.value_or(""); });
}

std::vector<Record> records_of(const std::string& journal) {
  std::vector<Record> records;
  for (const wire::Frame& frame : journal::replay(journal).records) {
    auto record = record_from(frame);
    if (!record) break;
    records.push_back(std::move(*record));
  }
  return records;
}

/// Reports the progress of a long check of the checkpoint at `path`.
io::CheckProgress report_progress(std::string path, std::function<void(std::string)> report) {
  auto due = std::chrono::steady_clock::now() + kFirstWord;
  return [path = std::move(path), report = std::move(report), due](std::uint64_t done,
                                                                   std::uint64_t total) mutable {
    const auto now = std::chrono::steady_clock::now();
    if (now < due) return;
    due = now + kNextWord;
    report(fmt::format("reading {}: {:.1f} of {:.1f} GB", path, static_cast<double>(done) / 1e9,
                       static_cast<double>(total) / 1e9));
  };
}

/// The state of a job in its journal, or in the copy of that.
struct Past {
  bool ends_badly = false;                         ///< Its end was decided, other than by success.
  std::optional<std::vector<HostSlots>> accepted;  ///< The last host_worker.
  std::vector<Host> replaced;
};

Result<Past> past_of(const std::string& journal) {
  Past past;
  const auto bytes = read_if_there(journal);
  if (!bytes) return tl::unexpected(bytes.error());
  for (Record& record : records_of(*bytes)) {
    if (const auto* ending = std::get_if<JobEnding>(&record))
      past.ends_badly = ending->exit_code != 0;
    if (auto* file = std::get_if<FileTaken>(&record)) past.accepted = std::move(file->hosts);
    if (const auto* base = std::get_if<BaseReplaced>(&record))
      past.replaced.insert(past.replaced.end(), {base->from, base->to});
  }
  return past;
}

/// The lines of a host_worker beyond those of the base workers.
std::vector<Host> added_lines(const std::vector<HostSlots>& accepted,
                              const std::vector<Host>& base) {
  std::vector<Host> lines;
  for (const HostSlots& s : accepted) {
    const auto there = static_cast<std::uint32_t>(std::ranges::count(base, s.host));
    if (s.slots > there) lines.insert(lines.end(), s.slots - there, s.host);
  }
  return lines;
}

/// What the programs of the next job find otherwise than those of the past one did, in the words of
/// options: "--env LR, --env-worker SEED"; empty for nothing. The next one's values are here; the
/// past one's may not be.
std::string changes_since(const io::JobSpec& past, const io::JobSpec& next) {
  using Variables = std::map<std::string, std::string>;
  std::vector<std::string> changed;
  const auto compare = [&](const char* option, const auto& then, const auto& now) {
    const Variables before(then.begin(), then.end());
    Variables all = before;
    const Variables after(now.begin(), now.end());
    all.insert(after.begin(), after.end());
    for (const auto& [name, value] : all) {
      const bool is_in_both = before.contains(name) && after.contains(name);
      if (!is_in_both || (!past.is_env_elsewhere && before.at(name) != after.at(name)))
        changed.push_back(fmt::format("{} {}", option, name));
    }
  };
  compare("--env", past.env, next.env);
  compare("--env-server", past.env_server, next.env_server);
  compare("--env-worker", past.env_worker, next.env_worker);
  if (past.cwd != next.cwd) changed.emplace_back("the working directory");
  if (past.workers.size() != next.workers.size())
    changed.push_back(fmt::format("-n {} (was {})", next.workers.size(), past.workers.size()));
  else if (past.workers != next.workers)
    changed.emplace_back("the hosts");
  if (past.servers.size() != next.servers.size())
    changed.push_back(fmt::format("-s {} (was {})", next.servers.size(), past.servers.size()));
  for (std::string& option : io::options_that_differ(past, next))
    changed.push_back(std::move(option));
  return fmt::format("{}", fmt::join(changed, ", "));
}

Result<std::map<std::string, std::string>> variables_of(const std::string& file) {
  std::map<std::string, std::string> out;
  if (file.empty()) return out;
  auto text = io::read_file(file);
  if (!text) return tl::unexpected(text.error());
  std::istringstream lines(*text);
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(ErrorKind::kInvalid, "{}, line {}: NAME=VALUE was expected", file, number);
    out[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return out;
}

/// The newest first; the one that the job began with last.
std::vector<std::pair<Epoch, std::string>> checkpoints_of(const io::JobSpec& spec) {
  std::vector<std::pair<Epoch, std::string>> found;
  std::error_code ec;
  for (fs::directory_iterator it(io::checkpoints_dir(spec), ec), end; !ec && it != end;
       it.increment(ec))
    if (const auto epoch = io::checkpoint_epoch(it->path().filename().string()))
      found.emplace_back(*epoch, it->path().string());
  std::sort(found.begin(), found.end(), std::greater<>());
  if (!spec.restore.empty()) found.emplace_back(Epoch(spec.restore_epoch), spec.restore);
  return found;
}

}  // namespace

Result<void> find_env_values(LastJob& job, const std::string& env_file,
                             const VariableOf& variable) {
  if (!job.spec.is_env_elsewhere) return {};
  const auto given = variables_of(env_file);
  if (!given) return tl::unexpected(given.error());
  std::vector<std::string> missing;
  for (auto* variables : {&job.spec.env, &job.spec.env_server, &job.spec.env_worker}) {
    for (auto& [name, value] : *variables) {
      const auto line = given->find(name);
      const auto here = line == given->end() ? variable(name) : std::optional(line->second);
      if (here)
        value = *here;
      else
        missing.push_back(name);
    }
  }
  job.spec.is_env_elsewhere = false;
  if (missing.empty()) return {};
  return fail(ErrorKind::kInvalid,
              "job {} was started with values of {}, which lie on the master {} only: set them in "
              "the environment, or give a file of NAME=VALUE lines with --env-file",
              job.spec.job, fmt::join(missing, ", "), job.pointer.master);
}

void wait_for_end(const LastJob& job, std::chrono::milliseconds limit) {
  if (!job.has_journal) return;
  const io::Fd process = io::open_pidfd(static_cast<pid_t>(job.pointer.pid));
  if (!process) return;
  pollfd ended{process.get(), POLLIN, 0};
  static_cast<void>(::poll(&ended, 1, static_cast<int>(limit.count())));
}

Result<LastJob> find_last_job(const std::string& job_dir) {
  if (auto there = io::volume_answers(job_dir, "job folder " + job_dir); !there)
    return tl::unexpected(there.error());
  auto pointer = io::read_job_pointer(job_dir);
  if (!pointer && pointer.error().kind == ErrorKind::kUnavailable)
    return fail(ErrorKind::kInvalid, "no job was ever started in {}", job_dir);
  if (!pointer) return tl::unexpected(pointer.error());
  if (auto mine = io::check_job_owner(job_dir, *pointer); !mine)
    return tl::unexpected(mine.error());
  auto spec = io::read_spec(fmt::format("{}/{}/spec.json", io::marker_dir(job_dir), pointer->job));
  if (!spec) return tl::unexpected(spec.error());
  LastJob job{.spec = std::move(*spec), .pointer = std::move(*pointer)};
  job.spec.job_dir = job_dir;  // it may have been moved, or be mounted elsewhere here
  job.is_running = io::somebody_listens(job.pointer.socket).value_or(false);
  const fs::path state = job.pointer.state_dir;
  std::error_code ec;
  // Another folder is that of a take-over that was not completed.
  job.has_journal = state == job.spec.state_dir && fs::exists(state / "journal", ec) &&
                    fs::exists(state / "spec.json", ec);
  if (job.spec.is_env_elsewhere)
    if (const auto whole = io::read_spec((state / "spec.json").string());
        whole && whole->job == job.spec.job) {
      job.spec.env = whole->env;
      job.spec.env_server = whole->env_server;
      job.spec.env_worker = whole->env_worker;
      job.spec.is_env_elsewhere = whole->is_env_elsewhere;
    }
  const auto past =
      past_of(job.has_journal ? (state / "journal").string() : io::journal_copy_file(job.spec));
  if (!past) return tl::unexpected(past.error());
  job.is_failing = job.has_journal && past->ends_badly;
  if (past->accepted) job.spec.added = added_lines(*past->accepted, job.spec.workers);
  job.spec.replaced.insert(job.spec.replaced.end(), past->replaced.begin(), past->replaced.end());
  return job;
}

void take_hosts(const LastJob& job, io::JobSpec& next) {
  next.added = job.spec.added;
  next.replaced = job.spec.replaced;
  for (std::size_t i = 0; i + 1 < next.replaced.size(); i += 2) {
    const Host& from = next.replaced[i];
    const Host& to = next.replaced[i + 1];
    for (Host& worker : next.workers) {
      if (worker != from) continue;
      worker = to;
      if (const auto line = std::ranges::find(next.added, to); line != next.added.end())
        next.added.erase(line);
    }
    std::ranges::replace(next.servers, from, to);
    if (std::ranges::count(next.known_hosts, to) == 0) next.known_hosts.push_back(to);
  }
}

AutoResume auto_resume(const Result<LastJob>& last, const io::JobSpec& next) {
  if (!last) return {.why = last.error().message};
  const std::string& name = last->spec.job;
  if (last->spec.command != next.command)
    return {.why = fmt::format("the last job here, {}, ran another command", name)};
  const auto& ended = last->pointer.ended;
  if (ended && ended->exit_code == 0)
    return {.why = fmt::format("the last job here, {}, has finished", name)};
  const std::string how =
      ended ? fmt::format("ended with exit code {} ({})", ended->exit_code, ended->message)
            : "did not come to its end";
  const std::string changes = changes_since(last->spec, next);
  return {.goes_on = true,
          .is_changed = !changes.empty(),
          .why = fmt::format("the last job here, {}, {}{}", name, how,
                             changes.empty() ? "" : ", changed since: " + changes)};
}

bool was_ended_by_scheduler(const io::JobSpec& past, const io::JobSpec& next,
                            const VariableOf& variable) {
  const auto& before = past.allocation;
  const auto& now = next.allocation;
  if (!before || !now || before->kind != now->kind || before->job != now->job) return false;
  const char* name = now->kind == StarterKind::kSlurm ? "SLURM_RESTART_COUNT" : "RESTARTED";
  return parse_number<std::uint64_t>(variable(name).value_or("")).value_or(0) > 0;
}

io::JobSpec spec_to_end(const LastJob& job) {
  io::JobSpec spec = job.spec;
  // Beside the folder that the job has, or had, where it was started.
  spec.state_dir = io::default_state_dir(spec.job) + ".end";
  spec.socket = io::default_runtime_dir(spec.job) + "/control";
  spec.detached = false;
  spec.is_taken_over = true;
  return spec;
}

Result<std::string> journal_to_end(const io::JobSpec& spec) {
  std::vector<Host> named = spec.added;
  for (const auto* hosts : {&spec.workers, &spec.servers})
    named.insert(named.end(), hosts->begin(), hosts->end());
  const std::string list = spec.job_dir + "/host_worker";
  const auto text = spec.elastic ? read_if_there(list) : Result<std::string>();
  if (!text) return tl::unexpected(text.error());
  auto lines = parse_hosts(*text, list);
  if (!lines)
    return fail(ErrorKind::kInvalid, "{} (it names the hosts on which the job may run)",
                lines.error().message);
  for (HostLine& line : with_known_ways(std::move(*lines), spec.known_hosts))
    named.push_back(std::move(line.host));
  const auto copy = read_if_there(io::journal_copy_file(spec));
  if (!copy) return tl::unexpected(copy.error());
  std::string bytes(journal::replay(*copy).header);
  for (const Record& record : records_to_end(records_of(*copy), named)) {
    const wire::Frame frame = to_frame(record);
    bytes += journal::append_bytes(frame.type, frame.body);
  }
  return bytes;
}

Result<void> decide_end(LastJob& job, const std::string& why) {
  if (job.is_failing) return {};
  std::vector<io::Fd> locked;
  for (const char* file : {"/spec.json", "/journal"}) {
    const std::string path = job.pointer.state_dir + file;
    io::Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!fd) return tl::unexpected(errno_error(errno, "open " + path));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
      return fail(ErrorKind::kDenied,
                  "job {} is running: its dtlaunch or supervisor lives on this machine",
                  job.spec.job);
    locked.push_back(std::move(fd));
  }
  const std::string path = job.pointer.state_dir + "/journal";
  const auto bytes = io::read_file(path);
  if (!bytes) return tl::unexpected(bytes.error());
  const journal::Replay replay = journal::replay(*bytes);
  if (replay.error) return tl::unexpected(replay.error->at(path));
  const std::string end = journal::append_bytes(JobEnding{kExitInterrupted, why});
  const int fd = locked.back().get();
  const bool is_written =
      replay.good_size == 0 ||  // it has not begun
      (::ftruncate(fd, static_cast<off_t>(replay.good_size)) == 0 &&
       ::pwrite(fd, end.data(), end.size(), static_cast<off_t>(replay.good_size)) ==
           static_cast<ssize_t>(end.size()) &&
       ::fsync(fd) == 0);
  if (!is_written) return tl::unexpected(errno_error(errno, "write " + path));
  job.is_failing = true;
  return {};
}

bool can_go_on(const io::JobSpec& spec) {
  return spec.rules.on_change == OnChange::kRestart || !checkpoints_of(spec).empty();
}

Result<void> begin_with_checkpoint(io::JobSpec& spec,
                                   const std::function<void(std::string)>& report) {
  for (const auto& [epoch, path] : checkpoints_of(spec)) {
    const auto manifest = io::read_manifest(path);
    const auto whole = manifest
                           ? io::check_checkpoint(path, *manifest, report_progress(path, report))
                           : tl::unexpected(manifest.error());
    if (!whole) {
      report("passed over: " + whole.error().message);
      continue;
    }
    spec.restore = path;
    spec.restore_epoch = manifest->epoch.value;
    return {};
  }
  return fail(ErrorKind::kInvalid,
              "{}: no checkpoint is there to begin with: none was asked for (--checkpoint-every, "
              "--checkpoint-interval), or there was no place for one, as dtctl events says",
              io::checkpoints_dir(spec));
}

}  // namespace dt::launcher
