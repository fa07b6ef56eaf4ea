/// A shorter journal for the same job: what replay() would overwrite or undo again is left out, in
/// the journal's own records, so that no reader needs a second path. Pure.
#pragma once

#include <vector>

#include "core/job/records.h"

namespace dt {

/// The state after the returned records, and after any others behind them, is the state after
/// `records` and those. Left out are, besides all but the last of a kind that replaces its
/// predecessor (TermBegan, TimeSpent, CheckpointTimed, AgentKnown and AgentPlaced of a host):
///
///  1. Boundaries between two others, if what they changed lasted until the later one: workers that
///     joined then and are still there. Nobody may have been asked to leave.
///  2. Commits in mid-epoch, once a boundary's commit follows.
///
/// Nothing is left out across a record on which the order of boundaries has an influence: an edit
/// of host_worker, a rollback, a member that left or ended with exit code 0, the job's end. The
/// first boundary behind such a record and the last one before it stay.
///
/// The lines of host_worker_log of what is left out are in Snapshot records, which come first. Only
/// their events (change_notes) are lost: the caller has written these.
[[nodiscard]] std::vector<Record> snapshot(const std::vector<Record>& records);

}  // namespace dt
