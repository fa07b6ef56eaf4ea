/// One libssh session under Asio: a non-blocking state machine that is turned whenever its socket
/// is ready. libssh's own waits are never used.
///
/// One thread. Shared by its owner and the streams on it; closing it ends them all. The socket
/// belongs to libssh (which closes it), the wait is on a duplicate, so that a descriptor closed
/// inside libssh is never confused with a new one of the same number.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "core/base/result.h"
#include "io/asio.h"
#include "io/fd.h"

// libssh's handles, without its headers.
struct ssh_session_struct;
struct ssh_channel_struct;

namespace dt::launcher {

class SshSession;
using SessionPtr = std::shared_ptr<SshSession>;

class SshSession : public std::enable_shared_from_this<SshSession> {
 public:
  [[nodiscard]] static Result<SessionPtr> make(io::asio::any_io_executor executor);
  ~SshSession();
  SshSession(const SshSession&) = delete;
  SshSession& operator=(const SshSession&) = delete;

  [[nodiscard]] ssh_session_struct* raw();
  [[nodiscard]] io::asio::any_io_executor executor() const { return executor_; }

  /// Key exchange over a connected socket. Set libssh's options before. An error whose
  /// `before_banner()` is true means that the server closed before its banner: sshd's MaxStartups,
  /// worth another try.
  io::awaitable<Result<void>> handshake(io::Fd socket);
  [[nodiscard]] bool before_banner() const { return before_banner_; }

  /// Repeats a libssh call until it returns something else than `again`; kDied (which is SSH_ERROR)
  /// when the session died meanwhile. The call must not suspend.
  static constexpr int kDied = -1;
  template <class Call>
  io::awaitable<int> repeat(Call call, int again) {
    while (!dead_) {
      const int rc = call();
      poke();
      if (rc != again) co_return rc;
      if (dead_) break;
      co_await changed();
    }
    co_return kDied;
  }

  /// Waits until something may have changed: bytes came, bytes went, the session died.
  io::awaitable<void> changed();
  /// Waits until `timer` expires or is cancelled, which the session's end does too: for those to
  /// whom most changes mean nothing.
  io::awaitable<void> wait(io::asio::steady_timer& timer);
  /// Ends all waits in changed().
  void notify() { wake_.cancel(); }
  /// To be called after every libssh call made outside repeat().
  void poke();
  /// While held, another thread uses the session: nothing here touches it.
  void set_busy(bool busy);

  [[nodiscard]] bool alive() const { return started_ && !dead_; }
  /// Bytes wait to be written.
  [[nodiscard]] bool write_pending() const;
  /// Ends everything on it. The first reason stays; it does not name the host.
  void close(Error why);
  /// Why it ended; only when it did.
  [[nodiscard]] const Error& why() const { return why_; }
  /// libssh's text for the last failure.
  [[nodiscard]] std::string last_error() const;

  /// From now on: asks for a sign of life when none came for `interval`, and closes after
  /// `count_max` unanswered ones. An interval of 0 switches it off.
  void keep_alive(Duration interval, int count_max);

  /// Called with each channel the server opens to reach our ssh-agent.
  void on_agent_channel(std::function<void(ssh_channel_struct*)> accept);

  /// Something that lives as long as the session (a ProxyCommand's process).
  void keep(std::shared_ptr<void> companion) { companion_ = std::move(companion); }
  /// A session that carries this one: it lives as long, and is named where its end was the reason.
  void carried_by(SessionPtr carrier) { carrier_ = std::move(carrier); }

 private:
  explicit SshSession(io::asio::any_io_executor executor);
  using Descriptor = io::asio::posix::stream_descriptor;
  void arm();
  /// `is_waiting`: whether a wait for this is under way.
  void await_socket(Descriptor::wait_type what, bool& is_waiting);
  void on_ready(const boost::system::error_code& ec);
  void pump();
  void alive_tick();
  /// Why this session ended: the carrier's reason if that ended first, else libssh's error.
  [[nodiscard]] std::string end_reason() const;

  io::asio::any_io_executor executor_;
  struct Libssh;
  std::unique_ptr<Libssh> lib_;
  std::function<void(ssh_channel_struct*)> accept_agent_;
  Descriptor descriptor_;
  io::asio::steady_timer wake_;
  io::asio::steady_timer alive_timer_;
  std::set<io::asio::steady_timer*> timers_;
  std::shared_ptr<void> companion_;
  SessionPtr carrier_;
  Duration alive_interval_{};
  int alive_count_max_ = 0;
  int alive_missed_ = 0;
  std::uint64_t alive_seen_ = 0;
  std::uint64_t seen_in_ = 0;
  std::uint64_t seen_out_ = 0;
  bool started_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool busy_ = false;
  bool dead_ = false;
  bool before_banner_ = false;
  Error why_;
};

/// Closes the session with `why` unless destroyed in time: how waits on a session get a deadline.
class Watchdog {
 public:
  Watchdog(const SessionPtr& session, Duration limit, Error why);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::shared_ptr<bool> armed_;
  io::asio::steady_timer timer_;
};

}  // namespace dt::launcher
