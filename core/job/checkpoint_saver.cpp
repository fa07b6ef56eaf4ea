#include "core/job/checkpoint_saver.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace dt {

CheckpointSaver::CheckpointSaver(JobContext& job)
    : job_(job),
      checkpoints_({job.options.checkpoint_every, job.options.checkpoint_interval,
                    job.options.keep_checkpoints}) {}

bool CheckpointSaver::saves_at(Epoch epoch) {
  if (job_.initial() || job_.finishing() || !checkpoints_.is_wanted(epoch, job_.now()))
    return false;
  if (checkpoints_.is_idle()) return true;
  if (checkpoints_.is_late())
    give_up(fmt::format(
        "epoch {} begins without a checkpoint: the one of epoch {} is still being written", epoch,
        checkpoints_.saving()->epoch));
  return false;
}

void CheckpointSaver::saved(const FromServer<Saved>& e, const Host& host, std::size_t servers) {
  const Saved& saved = e.message;
  if (!checkpoints_.is_about(saved.generation)) return;
  if (!saved.why.empty()) {
    checkpoints_.give_up();
    return give_up(fmt::format("no checkpoint of epoch {}: server {} on {}: {}", saved.epoch,
                               e.server, host, saved.why));
  }
  const Checkpoints::File file{saved.bytes, saved.header_crc, saved.step};
  if (checkpoints_.add(e.server, saved.generation, file, servers))
    job_.add(SealCheckpoint{*checkpoints_.saving()});
}

void CheckpointSaver::sealed(const CheckpointSealed& e) {
  if (!checkpoints_.is_about(e.generation)) return;
  const Checkpoints::Saving what = *checkpoints_.saving();
  if (!e.why.empty()) {
    checkpoints_.give_up();
    return give_up(fmt::format("no checkpoint of epoch {}: {}", what.epoch, e.why));
  }
  job_.record(CheckpointTaken{what.epoch, what.generation});
  std::uint64_t bytes = 0;
  for (const auto& [server, file] : what.files) bytes += file.bytes;
  const Duration age = job_.now() - what.began;
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(age);
  if (job_.options.checkpoint_interval != Duration{})
    job_.record(CheckpointTimed{what.epoch, job_.wall_ns() - age.count(),
                                static_cast<std::uint64_t>(took.count()), bytes});
  job_.note(Note::kInfo, "checkpoint_taken",
            fmt::format("checkpoint of epoch {}: {} file(s), {:.1f} MB", what.epoch,
                        what.files.size(), static_cast<double>(bytes) / 1e6));
}

void CheckpointSaver::place_seen(const CheckpointPlaceSeen& e, const std::set<Host>& server_hosts) {
  const bool was_without = !checkpoints_.no_place().empty();
  if (!checkpoints_.place_is(e.why_not) || server_hosts.empty()) return;
  if (!e.why_not.empty())
    job_.note(Note::kFailure, "no_checkpoints", no_checkpoints(server_hosts));
  else if (was_without)
    job_.note(Note::kInfo, "checkpoint_place", "checkpoints are saved from now on");
}

void CheckpointSaver::damaged(std::string trouble, const Host& host) {
  trouble_ = std::move(trouble);
  job_.note(Note::kFailure, "checkpoint_damaged", trouble_, host);
}

void CheckpointSaver::give_up(const std::string& why) {
  trouble_ = why;
  job_.note(Note::kFailure, "checkpoint_failed", why);
}

std::string CheckpointSaver::no_checkpoints(const std::set<Host>& server_hosts) const {
  if (checkpoints_.no_place().empty() || server_hosts.empty()) return "";
  const std::string which = server_hosts.size() == 1
                                ? to_string(*server_hosts.begin())
                                : fmt::format("any of these {} hosts", server_hosts.size());
  const auto origin = checkpoints_.newest() ? checkpoints_.newest() : job_.options.first_epoch;
  if (job_.options.rolls_back && origin)
    return fmt::format("no further checkpoints ({}): the loss of {} takes the job back to epoch {}",
                       checkpoints_.no_place(), which, *origin);
  return fmt::format("no checkpoints ({}): the loss of {} ends the job", checkpoints_.no_place(),
                     which);
}

void CheckpointSaver::apply(const Committed& r) {
  if (!r.boundary) return;
  commit_that_saves_.reset();
  if (!r.saves) return;
  commit_that_saves_ = r.generation;
  checkpoints_.begin(r.epoch, r.generation, job_.now());
}

void CheckpointSaver::apply(const CheckpointTaken& r) {
  checkpoints_.taken(r.epoch);
  trouble_.clear();
}

void CheckpointSaver::apply(const CheckpointTimed& r) {
  // Wall clocks may have been set: no checkpoint began after now or took longer than a month.
  constexpr std::uint64_t kLongest_ms = std::uint64_t{31} * 24 * 3600 * 1000;
  const std::int64_t now = std::max<std::int64_t>(job_.wall_ns(), 0);
  const std::int64_t began = std::clamp<std::int64_t>(r.began_ns, 0, now);
  checkpoints_.timed(job_.now() - Duration(now - began),
                     std::chrono::milliseconds(std::min(r.took_ms, kLongest_ms)), r.bytes);
}

void CheckpointSaver::apply(const RolledBack& r) {
  checkpoints_.roll_back(r.epoch);
  if (r.damaged) checkpoints_.damaged(*r.damaged);
  commit_that_saves_.reset();
}

}  // namespace dt
