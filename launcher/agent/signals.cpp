#include "launcher/agent/signals.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>

#include "io/notice_signals.h"
#include "io/process_tree.h"

namespace dt::launcher {
namespace {

void hand_on(const io::Fd& process, int signal, bool as_notices) {
  if (as_notices)
    io::signal_pidfd(process, signal);
  else if (signal == SIGTERM || signal == SIGINT)
    io::signal_pidfd(process, SIGTERM);
}

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

sigset_t scheduler_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  for (const int number : io::kNoticeSignals) sigaddset(&set, number);
  return set;
}

io::Fd take_signals(const sigset_t& signals) {
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  return io::Fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

io::Fd peer_of(const io::Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return io::open_pidfd(peer.pid);
}

void hand_signals_on(const io::Fd& agent, bool as_notices) {
  const sigset_t signals = scheduler_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, process = peer_of(agent), as_notices] {
    for (int signal = 0;;)
      if (::sigwait(&signals, &signal) == 0) hand_on(process, signal, as_notices);
  }).detach();
}

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
