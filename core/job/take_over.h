/// The end of a job whose master is gone and whose journal may be missing, torn or old here. Pure.
#pragma once

#include <vector>

#include "core/files/hosts.h"
#include "core/job/records.h"

namespace dt {

/// A journal by which a supervisor of another master reaches every host on which the job may run,
/// with a term above all that were, and ends it. `known`: what is left of the job's journal.
/// `named`: hosts of its spec and of host_worker, also those that joined after `known` ends.
[[nodiscard]] std::vector<Record> records_to_end(const std::vector<Record>& known,
                                                 const std::vector<Host>& named);

}  // namespace dt
