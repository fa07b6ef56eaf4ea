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
#include <optional>
#include <string>

#include "io/asio.h"
#include "io/byte_stream.h"
#include "io/fd.h"

// libssh's handles, without its headers.
struct ssh_session_struct;
struct ssh_channel_struct;

namespace dt::launcher {

class SshSession : public std::enable_shared_from_this<SshSession> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<SshSession>> make(io::asio::any_io_executor executor);
  ~SshSession();
  SshSession(const SshSession&) = delete;
  SshSession& operator=(const SshSession&) = delete;

  [[nodiscard]] ssh_session_struct* raw();
  [[nodiscard]] io::asio::any_io_executor executor() const { return executor_; }

  /// Key exchange over a connected socket. Set libssh's options before. An error whose
  /// `before_banner()` is true says that the server hung up without a word of ssh: sshd's
  /// MaxStartups, worth another try.
  io::awaitable<Result<void>> handshake(io::Fd socket);
  [[nodiscard]] bool before_banner() const { return before_banner_; }

  /// Repeats a libssh call until it says something else than `again`; kDied (which is SSH_ERROR)
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
  /// Wakes everyone in changed().
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
  /// What libssh says about the last failure.
  [[nodiscard]] std::string last_error() const;

  /// From now on: asks for a sign of life when none came for `interval`, and closes after
  /// `count_max` unanswered ones. An interval of 0 switches it off.
  void keep_alive(Duration interval, int count_max);

  /// Called with each channel the server opens to reach our ssh-agent.
  void on_agent_channel(std::function<void(ssh_channel_struct*)> accept);

  /// Something that lives as long as the session (a ProxyCommand's process).
  void keep(std::shared_ptr<void> companion) { companion_ = std::move(companion); }

 private:
  explicit SshSession(io::asio::any_io_executor executor);
  void arm();
  void on_ready(const boost::system::error_code& ec);
  void pump();
  void alive_tick();
  void died();

  io::asio::any_io_executor executor_;
  struct Libssh;
  std::unique_ptr<Libssh> lib_;
  std::function<void(ssh_channel_struct*)> accept_agent_;
  io::asio::posix::stream_descriptor descriptor_;
  io::asio::steady_timer wake_;
  io::asio::steady_timer alive_timer_;
  std::shared_ptr<void> companion_;
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
  Watchdog(const std::shared_ptr<SshSession>& session, Duration limit, Error why);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::shared_ptr<bool> armed_;
  io::asio::steady_timer timer_;
};

/// A channel of a session as a stream of bytes. stderr is kept, bounded, for messages.
class SshStream final : public io::ByteStream {
 public:
  /// Runs `command` by the user's login shell on the host. `lease` is kept as long as the stream.
  static io::awaitable<Result<std::unique_ptr<SshStream>>> exec(std::shared_ptr<SshSession> session,
                                                                std::string command,
                                                                bool forward_agent,
                                                                Duration deadline,
                                                                std::shared_ptr<void> lease);
  /// A channel the server opened.
  SshStream(std::shared_ptr<SshSession> session, ssh_channel_struct* channel,
            std::shared_ptr<void> lease);
  ~SshStream() override;

  io::awaitable<Result<std::size_t>> read(std::span<char> into) override;
  io::awaitable<Result<void>> write(std::string_view bytes) override;
  void close() override;

  /// No more will be written: the command reads the end of its input.
  void finish_writing();
  /// After read() said 0: the exit code (128 + signal), or -1 when none came.
  [[nodiscard]] int exit_code() const { return exit_code_; }
  /// Why none came.
  [[nodiscard]] Error no_exit_code() const;
  /// The last 8 kB of the command's stderr, trimmed.
  [[nodiscard]] std::string stderr_tail() const;
  /// Bytes to be read before all others.
  void unread(std::string bytes);
  [[nodiscard]] SshSession& session() { return *session_; }

 private:
  static int on_data(ssh_session_struct*, ssh_channel_struct*, void* data, std::uint32_t size,
                     int is_stderr, void* self);
  void pull();

  std::shared_ptr<SshSession> session_;
  ssh_channel_struct* channel_ = nullptr;
  std::shared_ptr<void> lease_;
  struct Callbacks;
  std::unique_ptr<Callbacks> callbacks_;
  std::string buffer_;
  std::size_t taken_ = 0;
  std::string stderr_;
  int exit_code_ = -1;
  bool overflowed_ = false;
  bool remote_closed_ = false;
  bool closed_ = false;
};

}  // namespace dt::launcher
