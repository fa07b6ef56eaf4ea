#include "core/job/checkpoints.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/quantity.h"

namespace dt {

bool Checkpoints::is_due(Epoch epoch) const {
  /// By time, the interval is at least so many times the duration of the last one.
  constexpr int kLeastShare = 20;
  const JobOptions& options = job_.options;
  if (last_begun_ && epoch <= *last_begun_) return false;
  if (is_wanted_) return can_save();
  if (options.checkpoint_every > 0) return epoch.value % options.checkpoint_every == 0;
  if (options.checkpoint_interval == Duration{} || no_place_ != "") return false;
  return !begun_at_ ||
         job_.now() - *begun_at_ >= std::max(options.checkpoint_interval, kLeastShare * took_);
}

bool Checkpoints::saves_at(Epoch epoch) {
  if (job_.initial() || job_.finishing() || !is_due(epoch)) return false;
  if (!saving_) return true;
  const bool was_noted = std::exchange(saving_->is_late_noted, true);
  if (job_.options.checkpoint_every > 0 || !was_noted)
    failed(fmt::format(
        "epoch {} begins without a checkpoint: the one of epoch {} is still being written", epoch,
        saving_->epoch));
  return false;
}

void Checkpoints::saved(const FromServer<Saved>& e, const Host& host, std::size_t servers) {
  const Saved& saved = e.message;
  if (!is_about(saved.generation)) return;
  if (!saved.why.empty())
    return give_up(fmt::format("no checkpoint of epoch {}: server {} on {}: {}", saved.epoch,
                               e.server, host, saved.why));
  if (saving_->is_sealing) return;
  saving_->files[e.server] = saved;
  saving_->is_sealing = saving_->files.size() == servers;
  if (saving_->is_sealing) job_.add(SealCheckpoint{*saving_});
}

void Checkpoints::sealed(const CheckpointSealed& e) {
  if (!is_about(e.generation)) return;
  const Saving what = *saving_;
  if (!e.why.empty())
    return give_up(fmt::format("no checkpoint of epoch {}: {}", what.epoch, e.why));
  job_.record(CheckpointTaken{what.epoch, what.generation});
  std::uint64_t bytes = 0;
  for (const auto& [server, file] : what.files) bytes += file.bytes;
  const Duration age = job_.now() - what.began;
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(age);
  if (job_.options.checkpoint_interval != Duration{})
    job_.record(CheckpointTimed{what.epoch, job_.wall_ns() - age.count(),
                                static_cast<std::uint64_t>(took.count()), bytes});
  job_.note(Note::kInfo, "checkpoint_taken",
            fmt::format("checkpoint saved at the start of epoch {} ({})", what.epoch,
                        bytes_text(static_cast<double>(bytes))));
}

void Checkpoints::place_seen(const CheckpointPlaceSeen& e, const std::set<Host>& server_hosts) {
  const std::string before = std::exchange(no_place_, e.why_not).value_or("");
  if (e.why_not == before || server_hosts.empty()) return;
  if (e.why_not.empty())
    job_.note(Note::kInfo, "checkpoint_place", "checkpoints are saved from now on");
  else
    job_.note(Note::kFailure, "no_checkpoints", no_checkpoints(server_hosts));
}

void Checkpoints::damaged(std::string trouble, const Host& host) {
  trouble_ = std::move(trouble);
  job_.note(Note::kFailure, "checkpoint_damaged", trouble_, host);
}

void Checkpoints::failed(const std::string& why) {
  trouble_ = why;
  job_.note(Note::kFailure, "checkpoint_failed", why);
}

void Checkpoints::give_up(const std::string& why) {
  saving_.reset();
  failed(why);
}

std::string Checkpoints::no_checkpoints(const std::set<Host>& server_hosts) const {
  const std::string no_place = no_place_.value_or("");
  if (no_place.empty() || server_hosts.empty()) return "";
  const std::string which = server_hosts.size() == 1
                                ? to_string(*server_hosts.begin())
                                : fmt::format("any of these {} hosts", server_hosts.size());
  const auto origin = newest() ? newest() : job_.options.first_epoch;
  if (job_.options.rolls_back && origin)
    return fmt::format("no further checkpoints ({}): the loss of {} takes the job back to epoch {}",
                       no_place, which, *origin);
  return fmt::format("no checkpoints ({}): the loss of {} ends the job", no_place, which);
}

std::optional<Epoch> Checkpoints::newest(std::optional<Epoch> but) const {
  const auto last =
      std::find_if(whole_.rbegin(), whole_.rend(), [but](Epoch other) { return other != but; });
  return last == whole_.rend() ? std::nullopt : std::optional(*last);
}

void Checkpoints::apply(const Committed& r) {
  if (!r.boundary) return;
  commit_that_saves_.reset();
  if (!r.saves) return;
  commit_that_saves_ = r.generation;
  saving_ = Saving{{r.epoch, r.generation, {}}, job_.now()};
  last_begun_ = r.epoch;
  begun_at_ = job_.now();
}

void Checkpoints::apply(const CheckpointTaken& r) {
  std::erase_if(whole_, [&r](Epoch other) { return other >= r.epoch; });
  whole_.push_back(r.epoch);
  if (whole_.size() > job_.options.keep_checkpoints) whole_.erase(whole_.begin());
  saving_.reset();
  trouble_.clear();
}

void Checkpoints::apply(const CheckpointTimed& r) {
  // Wall clocks may have been set: no checkpoint began after now or took longer than a month.
  constexpr std::uint64_t kLongest_ms = std::uint64_t{31} * 24 * 3600 * 1000;
  const std::int64_t now = std::max<std::int64_t>(job_.wall_ns(), 0);
  const std::int64_t began = std::clamp<std::int64_t>(r.began_ns, 0, now);
  begun_at_ = job_.now() - Duration(now - began);
  took_ = std::chrono::milliseconds(std::min(r.took_ms, kLongest_ms));
  bytes_ = r.bytes;
}

void Checkpoints::apply(const RolledBack& r) {
  saving_.reset();
  last_begun_ = r.epoch;
  if (r.damaged) std::erase(whole_, *r.damaged);
  commit_that_saves_.reset();
}

}  // namespace dt
