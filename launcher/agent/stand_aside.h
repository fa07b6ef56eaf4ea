/// `dtagent --attach --aside`: where a scheduler takes a command that a signal ended for the
/// failure of a whole job. SGE is one: it kills the process group of a qrsh whose client is gone,
/// and then the job.
#pragma once

namespace dt::launcher {

/// Takes this process out of the process group that it leads, into its parent's. When the group is
/// killed, this process ends with 0; other signals to the group that a scheduler sends come here.
/// Does nothing in a process that leads a session. Call it before there are other threads.
void stand_aside();

}  // namespace dt::launcher
