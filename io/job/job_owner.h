/// Whose job lies in a folder. A job's files say how its hosts are reached, with which command, and
/// where its supervisor writes: who uses another user's runs that user's commands.
#pragma once

#include <string>

#include "core/base/result.h"
#include "io/job/job_pointer.h"

namespace dt::io {

/// kDenied, naming the file and the remedy, unless `.dtlaunch`, its pointer file, the job's folder
/// and spec there, and the job's state folder, where they exist, are plain, this user's, and not
/// writable for others. Root is no exception. On a volume that shows all files as one user's, a
/// file that this process makes there shows the same. The job folder itself may be shared.
[[nodiscard]] Result<void> check_job_owner(const std::string& job_dir, const JobPointer& pointer);
/// The same of `.dtlaunch` alone, before a job of this user begins there.
[[nodiscard]] Result<void> check_folder_owner(const std::string& job_dir);

/// "alice", or "user 1007" without an entry in the user database.
[[nodiscard]] std::string user_name(unsigned uid);

}  // namespace dt::io
