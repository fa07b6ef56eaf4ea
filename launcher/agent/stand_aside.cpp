#include "launcher/agent/stand_aside.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>

#include "launcher/agent/signals.h"

namespace dt::launcher {
namespace {

/// What stays in the group until `owner` ends or the group is killed. `signals` are blocked.
[[noreturn]] void stand_in(pid_t owner, const sigset_t& signals) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, "dtagent-group");
  ::syscall(SYS_close_range, 0U, ~0U, 0U);  // who reads from the owner must see its end
  for (int signal = 0; ::getppid() == owner;)
    if (::sigwait(&signals, &signal) == 0) ::kill(owner, signal);
  ::_exit(0);
}

void wait_for(pid_t child) {
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

void stand_aside() {
  const pid_t own = ::getpid();
  if (::getpgrp() != own || ::getsid(0) == own) return;
  const sigset_t signals = scheduler_signals();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &signals, &before);
  const pid_t in_group = ::fork();
  if (in_group == 0) stand_in(own, signals);
  const bool is_aside = in_group > 0 && ::setpgid(0, ::getpgid(::getppid())) == 0;
  if (is_aside) {
    // With the signals blocked: they are for the threads that wait for them.
    std::thread([in_group] {
      wait_for(in_group);
      ::_exit(0);
    }).detach();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (is_aside || in_group < 0) return;
  ::kill(in_group, SIGKILL);
  wait_for(in_group);
}

}  // namespace dt::launcher
