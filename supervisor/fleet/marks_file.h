/// The marks of a fleet's machines, whether their provider keeps marks or not:
/// `.dtlaunch/JOB/fleet.json`. A machine is known by its id from when its host was added, or it
/// was marked or asked for its end, until it was let go and has left the list.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/fleet/fleet_plan.h"

namespace dt::supervisor {

/// A `dtctl grow` or `dtctl shrink`, once it was begun: whoever does it again does the same.
struct BegunResize {
  std::int64_t id = 0;     ///< 0: none.
  std::uint64_t from = 0;  ///< grow: machines that were asked for before,
  std::uint64_t to = 0;    ///< and are after it.
  std::string said = {};   ///< shrink: which machines.
};

/// Calls block while the volume does.
class MarksFile {
 public:
  /// A torn file counts as empty. A machine whose host has REMOVED as its last line in the change
  /// log then has the mark kRemoved: dtfleet does not add a host again that a person removed.
  [[nodiscard]] static Result<MarksFile> open(const std::string& job_dir, const std::string& job);

  /// A sentence about a file that was lost; empty: it was whole.
  [[nodiscard]] const std::string& loss() const { return loss_; }
  [[nodiscard]] std::vector<Machine> known() const;
  /// Is a machine of the host known?
  [[nodiscard]] bool knows_host(const std::string& host) const;
  /// Gives machines of a complete list the marks that they have here, where those are further.
  void apply(std::vector<Machine>& listed);
  /// After what was done with the machine.
  Result<void> note_done(const FleetAction& action, Machine machine);
  [[nodiscard]] const BegunResize& resize() const { return resize_; }
  /// `asked` machines are to go.
  Result<void> begin_resize(BegunResize resize, const std::vector<Machine>& asked);

 private:
  explicit MarksFile(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] Result<void> save() const;
  /// kProtocol: it is torn.
  Result<void> parse(const std::string& text);

  std::string path_;
  std::string loss_;
  std::map<std::string, Machine> machines_;  ///< By id.
  std::set<std::string> let_go_;             ///< Those of them that were.
  BegunResize resize_;
  std::set<std::string> removed_;  ///< Hosts that were removed before the file was lost.
};

}  // namespace dt::supervisor
