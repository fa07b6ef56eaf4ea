/// The commands, one function each; the exit code. Those that ask the job or read its files throw
/// Usage and Failed.
#pragma once

#include "io/asio.h"
#include "supervisor/dtctl/command.h"

namespace dt::supervisor {

// exec_command.cpp: a command on many hosts; clean.cpp: ends what crashed jobs left on hosts.
/// `program` has name and synopsis; `words`: those after "exec". Why a command line is refused is
/// printed.
[[nodiscard]] int exec_main(io::Program program, const std::string& job_dir,
                            const io::Words& words);
[[nodiscard]] int clean_main(io::Program program, const std::string& job_dir,
                             const io::Words& words);

}  // namespace dt::supervisor

namespace dt::supervisor::ctl {

// show.cpp: what the job says of itself.
io::awaitable<int> status(Arguments args);
io::awaitable<int> metrics(Arguments args);
io::awaitable<int> why(Arguments args);

// job_wait.cpp: follows a job until conditions hold.
/// Requests the status whenever the supervisor reports a change (io/job/control_protocol.h,
/// "changes"). Waits for a supervisor that has died: it may be started again. Events of the job's
/// earlier supervisors come from events.jsonl.
io::awaitable<int> wait(Arguments args);

// steer.cpp: its members and its end.
io::awaitable<int> console(Arguments args);
io::awaitable<int> resume(Arguments args);
io::awaitable<int> stop(Arguments args);
io::awaitable<int> edit(Arguments args);  ///< add, remove
io::awaitable<int> replace(Arguments args);
io::awaitable<int> leave(Arguments args);

// nodes.cpp: nodes of a scheduler.
io::awaitable<int> grow(Arguments args);
io::awaitable<int> shrink(Arguments args);

// files.cpp: files of its folder, also after its end.
io::awaitable<int> logs(Arguments args);
io::awaitable<int> events(Arguments args);

}  // namespace dt::supervisor::ctl
