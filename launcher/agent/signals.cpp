#include "launcher/agent/signals.h"

#include <sys/socket.h>

#include <csignal>
#include <thread>

#include "io/notice_signals.h"
#include "io/process_tree.h"

namespace dt::launcher {

sigset_t scheduler_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  for (const int number : io::kNoticeSignals) sigaddset(&set, number);
  return set;
}

namespace {

void hand_on(const io::Fd& process, int signal, bool as_notices) {
  if (as_notices)
    io::signal_pidfd(process, signal);
  else if (signal == SIGTERM || signal == SIGINT)
    io::signal_pidfd(process, SIGTERM);
}

}  // namespace

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

}  // namespace dt::launcher
