/// Saves the job's checkpoints: at which boundary, whether all servers' files exist, which ones are
/// valid, and why none can be saved. Pure.
///
///     idle --a boundary that is due--> saving --every server's file is there--> sealing --> idle
///                                         `--a server could not: given up--> idle
///
/// A boundary is due by its epoch's number, or by time: the first one after an epoch was trained,
/// then the first one after an interval that keeps the cost of saving below a twentieth of the
/// time; before a server's host goes away, the next one. The boundary before the first epoch is
/// never due: servers may hold no values yet. By time, a boundary is due only while there is a
/// place for checkpoints; by epochs, the user answers for it.
///
/// Servers copy their values at the commit of a boundary, before any worker is released into the
/// epoch, and write them while it runs. Only a sealed checkpoint is valid. One is written at a
/// time: until it is done, boundaries that are due pass without one, even if the volume stalls.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/files/hosts.h"
#include "core/job/context.h"

namespace dt {

class Checkpoints {
 public:
  explicit Checkpoints(JobContext& job) : job_(job) {}

  /// Whether the boundary before this epoch saves a checkpoint; never if the epoch begins again.
  [[nodiscard]] bool saves_at(Epoch epoch);
  /// One of `servers` servers has written its file, or could not.
  void saved(const FromServer<Saved>& e, const Host& host, std::size_t servers);
  void sealed(const CheckpointSealed& e);
  /// `server_hosts`: where servers are; none without servers.
  void place_seen(const CheckpointPlaceSeen& e, const std::set<Host>& server_hosts);
  /// Whether the next boundary is due, whenever the last one was saved.
  void want(bool wanted) { is_wanted_ = wanted; }
  /// The checkpoint that the servers begin with cannot be read.
  void damaged(std::string trouble, const Host& host);

  void apply(const Committed& r);
  void apply(const EpochBegan&) { commit_that_saves_.reset(); }
  void apply(const CheckpointTaken& r);
  void apply(const CheckpointTimed& r);
  void apply(const RolledBack& r);

  /// The epoch of the newest valid one other than `but`.
  [[nodiscard]] std::optional<Epoch> newest(std::optional<Epoch> but = std::nullopt) const;
  /// Whether any can be saved now.
  [[nodiscard]] bool can_save() const {
    return job_.options.checkpoint_every > 0 ||
           (job_.options.checkpoint_interval != Duration{} && no_place_ == "");
  }
  /// How many are valid.
  [[nodiscard]] std::size_t count() const { return whole_.size(); }
  /// The size of the newest, all files together; 0: not known.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// The epoch of the one that is being written.
  [[nodiscard]] std::optional<Epoch> saving() const {
    return saving_ ? std::optional(saving_->epoch) : std::nullopt;
  }
  /// From the last one's begin until it was valid; zero: none was.
  [[nodiscard]] Duration took() const { return took_; }
  /// The commit of the present epoch, if it saves.
  [[nodiscard]] std::optional<Generation> commit_that_saves() const { return commit_that_saves_; }
  /// Why the last checkpoint was given up; empty: none was since the last good one.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  /// The sentence that no checkpoint can be saved, why, and what a loss means then; empty: one can,
  /// or none is wanted.
  [[nodiscard]] std::string no_checkpoints(const std::set<Host>& server_hosts) const;

 private:
  /// The values at the beginning of the epoch, copied at the commit of the generation.
  struct Saving : SealCheckpoint {
    Time began{};
    bool is_sealing = false;
    bool is_late_noted = false;
  };

  [[nodiscard]] bool is_due(Epoch epoch) const;
  [[nodiscard]] bool is_about(Generation generation) const {
    return saving_ && saving_->generation == generation;
  }
  void failed(const std::string& why);
  void give_up(const std::string& why);

  JobContext& job_;
  std::optional<Saving> saving_;
  std::vector<Epoch> whole_;  ///< The valid ones, in ascending order.
  std::optional<Generation> commit_that_saves_;
  std::optional<Epoch> last_begun_;
  std::optional<Time> begun_at_;  ///< When the last one was begun.
  Duration took_{};
  std::uint64_t bytes_ = 0;
  /// Why there is no place for checkpoints; empty: there is one; nothing: not known yet.
  std::optional<std::string> no_place_;
  std::string trouble_;
  bool is_wanted_ = false;
};

}  // namespace dt
