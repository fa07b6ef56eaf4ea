/// The marks of a fleet's machines, whether their provider keeps marks or not:
/// `.dtlaunch/JOB/fleet.json`. A machine is known by its id from its first mark until it was let
/// go.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/fleet/fleet_plan.h"

namespace dt::supervisor {

/// Calls block while the volume does.
class MarksFile {
 public:
  /// Of a file that is torn nothing counts: a machine whose last line in the change log is REMOVED
  /// then counts as removed, so that nobody is put back whom a person took out.
  [[nodiscard]] static Result<MarksFile> open(const std::string& job_dir, const std::string& job);

  /// A sentence about a file that was lost; empty: it was whole.
  [[nodiscard]] const std::string& loss() const { return loss_; }
  [[nodiscard]] std::vector<Machine> known() const;
  /// Is a machine of the host known?
  [[nodiscard]] bool knows_host(const std::string& host) const;
  /// Gives listed machines the marks that they have here, where those are further.
  void apply(std::vector<Machine>& listed);
  /// After what was done with the machine.
  Result<void> note_done(const FleetAction& action, Machine machine);

 private:
  explicit MarksFile(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] Result<void> save() const;
  /// kProtocol: it is torn.
  Result<void> parse(const std::string& text);

  std::string path_;
  std::string loss_;
  std::map<std::string, Machine> machines_;  ///< By id.
  std::set<std::string> removed_;            ///< Hosts that were removed before the file was lost.
};

}  // namespace dt::supervisor
