/// The notes about changes in host_worker_log. Made from the record alone, so that a new supervisor
/// can write the note of a change that its predecessor only journalled.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/job/events.h"
#include "core/job/records.h"

namespace dt {

/// One note for each line of host_worker_log that the record calls for, in their order.
[[nodiscard]] std::vector<Note> change_notes(const Record& record);

/// "worker 3", "workers 3, 4".
[[nodiscard]] std::string workers_text(const std::vector<WorkerId>& ids);

/// A change of an earlier term, with the view that followed it.
struct PastChange {
  Note note;
  Generation generation;
  std::optional<Epoch> epoch;
  std::optional<Rank> rank;
};

}  // namespace dt
