/// Saves the job's checkpoints: at which boundary, whether all servers' files exist, when one is
/// sealed and valid, and why none can be saved. Pure; the policy and the list of checkpoints are
/// core/job/checkpoints.h.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "core/base/id.h"
#include "core/files/hosts.h"
#include "core/job/checkpoints.h"
#include "core/job/context.h"

namespace dt {

class CheckpointSaver {
 public:
  explicit CheckpointSaver(JobContext& job);

  /// Whether the boundary before this epoch saves a checkpoint.
  [[nodiscard]] bool saves_at(Epoch epoch);
  /// One of `servers` servers has written its file, or could not.
  void saved(const FromServer<Saved>& e, const Host& host, std::size_t servers);
  void sealed(const CheckpointSealed& e);
  /// `server_hosts`: where servers are; none without servers.
  void place_seen(const CheckpointPlaceSeen& e, const std::set<Host>& server_hosts);
  /// The checkpoint that the servers begin with cannot be read.
  void damaged(std::string trouble, const Host& host);

  void apply(const Committed& r);
  void apply(const EpochBegan&) { commit_that_saves_.reset(); }
  void apply(const CheckpointTaken& r);
  void apply(const CheckpointTimed& r);
  void apply(const RolledBack& r);

  [[nodiscard]] const Checkpoints& checkpoints() const { return checkpoints_; }
  /// The commit of the present epoch, if it saves.
  [[nodiscard]] std::optional<Generation> commit_that_saves() const { return commit_that_saves_; }
  /// Why the last checkpoint was given up; empty: none was since the last good one.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  /// The sentence that no checkpoint can be saved, why, and what a loss means then; empty: one can,
  /// or none is wanted.
  [[nodiscard]] std::string no_checkpoints(const std::set<Host>& server_hosts) const;

 private:
  void give_up(const std::string& why);

  JobContext& job_;
  Checkpoints checkpoints_;
  std::optional<Generation> commit_that_saves_;
  std::string trouble_;
};

}  // namespace dt
