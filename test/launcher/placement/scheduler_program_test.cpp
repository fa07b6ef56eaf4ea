#include "launcher/placement/scheduler_program.h"

#include <cstdlib>

#include "test/support/catch.h"
#include "test/support/sshd.h"

using namespace dt;
using namespace dt::test;

TEST_CASE("scheduler program: what it prints, or why it printed nothing, fit for a terminal") {
  const TempDir folder;
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (folder.path() + ":" + path).c_str(), 1);
  ::setenv("SQUEUE_SORT", "x", 1);
  ::setenv("SLURM_TIME_FORMAT", "x", 1);
  ::setenv("SLURM_JOB_ID", "41", 1);
  const auto ask = [&folder](const std::string& script) {
    write_file(folder / "squeue", "#!/bin/sh\n" + script, 0700);
    return launcher::ask_scheduler("squeue", {"-h"}, "input\n");
  };
  const Answer good = ask("echo $1 $SQUEUE_SORT $SLURM_TIME_FORMAT $SLURM_JOB_ID; cat");
  const Answer bad = ask("printf 'one\\n\\033[31mtwo\\033[m \\033]0;title\\007\\n' >&2; exit 1");
  const Answer silent = ask("exit 3");
  ::setenv("PATH", path.c_str(), 1);
  for (const char* name : {"SQUEUE_SORT", "SLURM_TIME_FORMAT", "SLURM_JOB_ID"}) ::unsetenv(name);
  CHECK(good.is_there);
  CHECK(good.text == "-h 41\ninput\n");
  CHECK_FALSE((bad.is_there || silent.is_there));
  CHECK(bad.text == "two \\x1b]0;title\\x07");
  CHECK(silent.text == "squeue ended with exit code 3");
  const Answer none = launcher::ask_scheduler("no-such-program", {});
  CHECK(none.text == "no-such-program is not in PATH (Debian's package slurm-client)");
}
