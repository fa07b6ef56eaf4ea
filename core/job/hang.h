/// Which workers block an epoch, by the servers' reports: the workers that open rounds lack, those
/// that wait in them, and those that were active. Pure. It only measures; core/job/stragglers.h
/// adds up the time and decides.
///
/// Others wait for a worker if an open round lacks its part and it waits in no round itself. That
/// excludes a slow worker that waits for another, and one after its last round of the epoch.
///
/// A worker stands still if it is connected and sends nothing, not even the heartbeats of the
/// library's own thread. This holds for the only worker, too, which no other waits for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/base/by_id.h"
#include "core/base/id.h"
#include "core/base/lookup.h"
#include "core/base/time.h"
#include "core/protocol/control_messages.h"

namespace dt {

/// The position that a worker last reported.
struct Position {
  Epoch epoch;
  std::uint64_t step = 0;
  Time since{};  ///< When it was first reported.
};

class HangWatch {
 public:
  /// `report` names workers of the job only.
  void report(ServerId server, const Traffic& report, Time now);
  /// A sign of life is due from now on, unless a server lacks its connection.
  void expect(WorkerId worker, Time now);
  void figures(WorkerId worker, const Figures& figures);
  /// True if the position is new.
  bool progress(WorkerId worker, const Progress& at, Time now);
  /// The worker was active.
  void worked(WorkerId worker, Time now) { seen_[worker].worked = now; }
  /// The worker is gone: later reports of it are ignored.
  void forget(WorkerId worker);
  /// New servers replace those that reported.
  void forget_servers();

  /// Workers that others wait for and that do not wait themselves.
  [[nodiscard]] std::set<WorkerId> waited_for() const;
  [[nodiscard]] std::set<WorkerId> standing_still(Time now) const;
  /// It waits in a round.
  [[nodiscard]] bool waits(WorkerId worker) const;
  [[nodiscard]] std::optional<Time> last_work(WorkerId worker) const {
    const Seen* seen = seen_.find(worker);
    return seen ? seen->worked : std::nullopt;
  }
  /// All servers that have reported see its connection, and one has lately seen a sign of life.
  [[nodiscard]] bool is_alive(WorkerId worker, Time now) const;
  /// What it waits for: at the lowest key, if servers name several. Null: none says it.
  [[nodiscard]] const WaitingFor* wait_of(WorkerId worker) const;
  /// The key for people: as its worker names it, else its number.
  [[nodiscard]] std::string name_of(const WaitingFor& at) const;
  /// For tests: the counts agree with the reports.
  [[nodiscard]] bool index_holds() const;
  /// Null: it never reported one.
  [[nodiscard]] const Position* position(WorkerId worker) const {
    return find_in(positions_, worker);
  }

 private:
  struct Seen {
    std::optional<Time> alive;    ///< The last sign of life, or expect(); nothing: not connected.
    std::optional<Time> worked;   ///< Its last activity.
    std::uint32_t owed_to = 0;    ///< Servers with a round that lacks its part.
    std::uint32_t waits_at = 0;   ///< Servers with a round that it waits in.
    std::uint32_t away_from = 0;  ///< Servers that have no connection of it.
    KeyId waits_key;              ///< Figures::waits_key
    std::string waits_in;
    bool is_gone = false;
  };

  void count(const Traffic& report, std::uint32_t by);

  std::map<ServerId, Traffic> reports_;  ///< The last ones.
  ById<WorkerId, Seen> seen_;
  std::map<WorkerId, Position> positions_;
};

}  // namespace dt
