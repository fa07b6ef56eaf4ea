/// A channel of a session as a stream of bytes. stderr is kept, bounded, for messages.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "io/asio.h"
#include "launcher/backend/exec.h"
#include "launcher/backend/ssh/session.h"
#include "launcher/backend/stderr_text.h"

struct ssh_channel_callbacks_struct;  // libssh's, without its headers

namespace dt::launcher {

class SshStream;
using SshStreamPtr = std::unique_ptr<SshStream>;

class SshStream final : public ExecStream {
 public:
  /// Runs `command` by the user's login shell on the host. `lease` is kept as long as the stream.
  static io::awaitable<Result<SshStreamPtr>> exec(SessionPtr session, std::string command,
                                                  bool forward_agent, Duration deadline,
                                                  std::shared_ptr<void> lease);
  /// A connection that the server makes to a port. Must not be cancelled before it returns: a
  /// channel that is freed while it is being opened breaks libssh's session.
  static io::awaitable<Result<SshStreamPtr>> tunnel(SessionPtr session, std::string host,
                                                    std::uint16_t port);
  /// A channel the server opened.
  SshStream(SessionPtr session, ssh_channel_struct* channel, std::shared_ptr<void> lease);
  ~SshStream() override;

  io::awaitable<Result<std::size_t>> read(std::span<char> into) override;
  io::awaitable<Result<void>> write(std::string_view bytes) override;
  void close() override;

  void finish_writing() override;
  [[nodiscard]] int exit_code() const override { return exit_code_; }
  [[nodiscard]] Error no_exit_code() const override;
  [[nodiscard]] std::string stderr_tail() const override { return stderr_.tail(); }
  void on_stderr(std::function<void(std::string_view)> take) override {
    if (!closed_) stderr_.on_text(std::move(take));
  }
  [[nodiscard]] SshSession& session() { return *session_; }

 private:
  static int on_data(ssh_session_struct*, ssh_channel_struct*, void* data, std::uint32_t size,
                     int is_stderr, void* self);
  void pull();

  SessionPtr session_;
  ssh_channel_struct* channel_ = nullptr;
  std::shared_ptr<void> lease_;
  std::unique_ptr<ssh_channel_callbacks_struct> callbacks_;
  std::string buffer_;
  std::size_t taken_ = 0;
  StderrText stderr_;
  int exit_code_ = -1;
  io::asio::steady_timer arrived_;  ///< Cancelled when there may be something to read.
  bool ends_at_eof_ = false;        ///< No exit code comes after the end of the bytes.
  bool overflowed_ = false;
  bool remote_closed_ = false;
  bool closed_ = false;
};

}  // namespace dt::launcher
