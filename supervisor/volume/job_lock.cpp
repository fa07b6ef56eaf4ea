#include "supervisor/volume/job_lock.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "io/job/spec.h"
#include "supervisor/volume/volume_client.h"

namespace dt::supervisor {

using io::awaitable;

namespace {

/// From the making of a lock file to its content.
constexpr Duration kFilledWithin = std::chrono::milliseconds(500);
constexpr int kLooks = 10;
constexpr const char* kJobFiles[] = {"host_worker", "host_worker_log", "events.jsonl"};

Error refusal(const std::string& job_dir, const io::LockHolder& holder, const io::LockHolder& me) {
  if (io::same_boot(holder, me))
    return {
        ErrorKind::kDenied,
        fmt::format("job {} is running in {} (pid {} on this host): stop it with \"dtctl stop\" "
                    "there, or use another --job-dir",
                    holder.job, job_dir, holder.pid)};
  const std::string which = holder.boot_id == me.boot_id
                                ? "in another PID namespace of this machine, a container's perhaps"
                            : holder.host == me.host
                                ? fmt::format("on another host named {}", me.host)
                                : fmt::format("on host {}", holder.host);
  return {ErrorKind::kDenied,
          fmt::format("job {} holds {} (pid {} {}, boot {}): stop it with \"dtctl stop\" there, "
                      "or use another --job-dir; if it is surely gone or was restarted, "
                      "dtlaunch --resume {} --take-over goes on with its job, and rm {} gives the "
                      "folder to another one",
                      holder.job, job_dir, holder.pid, which, holder.boot_id, job_dir,
                      lock_path(job_dir))};
}

/// kDenied is reserved for a folder that another job holds.
Error trouble(Error error) {
  if (error.kind == ErrorKind::kDenied) error.kind = ErrorKind::kIo;
  return error;
}

/// The lock's text. A lock is created first and filled then: an invalid one is read again for a
/// while.
awaitable<Result<std::optional<std::string>>> read_lock(VolumeClient& volume, std::string path) {
  for (int look = 1;; ++look) {
    auto text = co_await volume.read(path);
    const bool is_torn = text && *text && !io::lock_from_json(**text);
    if (!is_torn || look == kLooks) co_return text;
    co_await io::sleep_for(kFilledWithin / kLooks);
  }
}

}  // namespace

std::string lock_path(const std::string& job_dir) { return io::marker_dir(job_dir) + "/lock"; }

awaitable<Result<bool>> take_job_lock(VolumeClient& volume, std::string job_dir, io::LockHolder me,
                                      bool by_force) {
  bool is_forced = false;
  const std::string path = lock_path(job_dir);
  auto made_dir = co_await volume.make_dirs(io::marker_dir(job_dir));
  if (!made_dir) co_return tl::unexpected(trouble(made_dir.error()));
  // Each turn either ends or removes a stale lock; more than a few mean a race with other jobs.
  for (int turn = 0; turn < 5; ++turn) {
    auto made = co_await volume.write_new(path, to_json(me));
    if (!made) co_return tl::unexpected(trouble(made.error()));
    if (*made) co_return is_forced;
    auto text = co_await read_lock(volume, path);
    if (!text) co_return tl::unexpected(trouble(text.error()));
    if (!*text) continue;
    const auto holder = io::lock_from_json(**text);
    if (!holder)
      co_return fail(ErrorKind::kDenied,
                     "{} cannot be understood ({}): if no job runs in this folder, rm {}", path,
                     holder.error().message, path);
    if (*holder == me) co_return is_forced;
    if (!io::is_stale(*holder, me)) {
      if (!by_force || io::same_boot(*holder, me))
        co_return tl::unexpected(refusal(job_dir, *holder, me));
      is_forced = true;
    }
    // Moved, not removed: of several that find it stale only one can move it.
    const std::string aside = fmt::format("{}.stale.{}", path, me.pid);
    auto moved = co_await volume.rename(path, aside);
    if (!moved) continue;
    auto what = co_await volume.read(aside);
    if (what && *what && **what != **text) {
      // Between our look and the move another job took it over: it is theirs.
      co_await volume.rename(aside, path);
      continue;
    }
    co_await volume.remove(aside);
  }
  co_return fail(ErrorKind::kDenied, "several jobs are being started in {}", job_dir);
}

awaitable<Result<std::optional<io::LockHolder>>> job_lock_holder(VolumeClient& volume,
                                                                 std::string job_dir) {
  auto text = co_await volume.read(lock_path(job_dir));
  if (!text) co_return tl::unexpected(text.error());
  if (!*text) co_return std::nullopt;
  co_return io::lock_from_json(**text);
}

awaitable<Result<void>> drop_job_lock(VolumeClient& volume, std::string job_dir,
                                      io::LockHolder me) {
  const std::string path = lock_path(job_dir);
  auto text = co_await volume.read(path);
  if (!text) co_return tl::unexpected(text.error());
  if (!*text) co_return Result<void>();
  const auto holder = io::lock_from_json(**text);
  if (!holder || *holder != me) co_return Result<void>();
  co_return co_await volume.remove(path);
}

awaitable<Result<std::optional<std::string>>> set_old_files_aside(VolumeClient& volume,
                                                                  std::string job_dir,
                                                                  std::string new_job,
                                                                  bool elastic) {
  std::string old_job;
  auto pointer = co_await volume.read(io::pointer_file(job_dir));
  if (!pointer) co_return tl::unexpected(pointer.error());
  if (*pointer) {
    const auto json = nlohmann::json::parse(**pointer, nullptr, false);
    if (json.is_object() && json.contains("job") && json["job"].is_string())
      old_job = json["job"].get<std::string>();
  }
  if (old_job.empty() || old_job == new_job || old_job.find('/') != std::string::npos ||
      old_job.starts_with('.')) {
    if (!elastic) co_return std::nullopt;
    old_job = "before-" + new_job;
  }
  const std::string folder = io::marker_dir(job_dir) + "/" + old_job;
  std::optional<std::string> host_worker;
  for (const std::string name : kJobFiles) {
    const std::string from = fmt::format("{}/{}", job_dir, name);
    const std::string to = fmt::format("{}/{}", folder, name);
    auto there = co_await volume.exists(from);
    if (!there) co_return tl::unexpected(there.error());
    if (!*there) continue;
    // The old job's events are there already: here is a link to them, or a copy.
    auto again = co_await volume.exists(to);
    if (!again) co_return tl::unexpected(again.error());
    auto first = *again ? volume.remove(from) : volume.make_dirs(folder);
    auto done = co_await std::move(first);
    if (done && !*again) done = co_await volume.rename(from, to);
    if (!done) co_return tl::unexpected(done.error());
    if (!*again && name == "host_worker") host_worker = to;
  }
  co_return host_worker;
}

}  // namespace dt::supervisor
