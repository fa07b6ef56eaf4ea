#include "launcher/backend/ssh/stream.h"

#include <libssh/callbacks.h>
#include <libssh/libssh.h>

#include <algorithm>
#include <csignal>
#include <cstring>

namespace dt::launcher {
namespace {

constexpr std::size_t kReadAhead = std::size_t{1} << 20;
/// Handed to libssh at once; it copies what it cannot send.
constexpr std::size_t kWritePiece = std::size_t{64} << 10;

/// RFC 4254, section 6.10: a name without SIG; TERM for one that libc does not know.
int signal_number(std::string_view name) {
  for (int number = 1; number < NSIG; ++number)
    if (const char* known = ::sigabbrev_np(number); known != nullptr && name == known)
      return number;
  return SIGTERM;
}

}  // namespace

SshStream::SshStream(SessionPtr session, ssh_channel channel, std::shared_ptr<void> lease)
    : session_(std::move(session)),
      channel_(channel),
      lease_(std::move(lease)),
      callbacks_(std::make_unique<ssh_channel_callbacks_struct>()),
      arrived_(session_->executor(), io::kNever) {
  ssh_channel_callbacks_struct& table = *callbacks_;
  table.userdata = this;
  table.channel_data_function = &SshStream::on_data;
  table.channel_close_function = [](ssh_session, ssh_channel, void* self) {
    auto& stream = *static_cast<SshStream*>(self);
    stream.remote_closed_ = true;
    stream.arrived_.cancel();
  };
  table.channel_eof_function = [](ssh_session, ssh_channel, void* self) {
    auto& stream = *static_cast<SshStream*>(self);
    if (!stream.ends_at_eof_) return;
    stream.remote_closed_ = true;
    stream.arrived_.cancel();
  };
  table.channel_exit_status_function = [](ssh_session, ssh_channel, int status, void* self) {
    static_cast<SshStream*>(self)->exit_code_ = status;
  };
  table.channel_exit_signal_function = [](ssh_session, ssh_channel, const char* name, int,
                                          const char*, const char*, void* self) {
    static_cast<SshStream*>(self)->exit_code_ = 128 + signal_number(name);
  };
  ssh_callbacks_init(&table);
  ssh_set_channel_callbacks(channel_, &table);
}

SshStream::~SshStream() {
  close();
  ssh_remove_channel_callbacks(channel_, callbacks_.get());
  // A dead session's channels are freed with it.
  if (session_->alive()) {
    ssh_channel_free(channel_);
    session_->poke();
  }
}

io::awaitable<Result<SshStreamPtr>> SshStream::exec(SessionPtr session, std::string command,
                                                    bool forward_agent, Duration deadline,
                                                    std::shared_ptr<void> lease) {
  if (!session->alive()) co_return tl::unexpected(session->why());
  Error late{ErrorKind::kTimeout, "no answer to a command"};
  Watchdog watchdog(session, deadline, std::move(late));
  ssh_channel channel = ssh_channel_new(session->raw());
  if (channel == nullptr) co_return fail(ErrorKind::kIo, "libssh: {}", session->last_error());
  auto stream = std::make_unique<SshStream>(session, channel, std::move(lease));
  auto open = [channel] { return ssh_channel_open_session(channel); };
  int rc = co_await session->repeat(open, SSH_AGAIN);
  if (rc == SSH_OK) {
    if (forward_agent) ssh_channel_request_auth_agent(channel);
    auto request = [channel, &command] {
      return ssh_channel_request_exec(channel, command.c_str());
    };
    rc = co_await session->repeat(request, SSH_AGAIN);
  }
  if (!session->alive()) co_return tl::unexpected(session->why());
  if (rc != SSH_OK)
    co_return fail(ErrorKind::kDenied, "sshd refused to run a command: {}", session->last_error());
  co_return std::move(stream);
}

io::awaitable<Result<SshStreamPtr>> SshStream::tunnel(SessionPtr session, std::string host,
                                                      std::uint16_t port) {
  if (!session->alive()) co_return tl::unexpected(session->why());
  ssh_channel channel = ssh_channel_new(session->raw());
  if (channel == nullptr) co_return fail(ErrorKind::kIo, "libssh: {}", session->last_error());
  auto stream = std::make_unique<SshStream>(session, channel, nullptr);
  stream->ends_at_eof_ = true;
  auto open = [channel, &host, port] {
    return ssh_channel_open_forward(channel, host.c_str(), port, "127.0.0.1", 0);
  };
  const int rc = co_await session->repeat(open, SSH_AGAIN);
  if (!session->alive()) co_return tl::unexpected(session->why());
  if (rc == SSH_OK) co_return std::move(stream);
  // "Channel opening failure: channel 43 error (2) Connection refused"
  const std::string said = session->last_error();
  const std::size_t reason = said.find(") ");
  const bool is_forbidden = said.find("error (1)") != std::string::npos;
  co_return fail(ErrorKind::kUnavailable, "{}: {}",
                 reason == std::string::npos ? said : said.substr(reason + 2),
                 is_forbidden ? "does sshd there allow it (AllowTcpForwarding, PermitOpen)?"
                              : "is sshd running on the host, and is the port right?");
}

int SshStream::on_data(ssh_session, ssh_channel, void* data, std::uint32_t size, int is_stderr,
                       void* self) {
  auto& stream = *static_cast<SshStream*>(self);
  const std::string_view bytes(static_cast<const char*>(data), size);
  if (is_stderr != 0) {
    stream.stderr_.feed(bytes);
    return static_cast<int>(size);
  }
  // The rest stays in libssh's buffer and closes the sender's window.
  if (stream.buffer_.size() - stream.taken_ >= kReadAhead) {
    stream.overflowed_ = true;
    return 0;
  }
  stream.buffer_.append(bytes);
  stream.arrived_.cancel();
  return static_cast<int>(size);
}

void SshStream::pull() {
  if (!overflowed_ || !session_->alive()) return;
  std::string piece(std::size_t{256} << 10, '\0');
  const int n = ssh_channel_read_nonblocking(channel_, piece.data(),
                                             static_cast<std::uint32_t>(piece.size()), 0);
  overflowed_ = n > 0;
  if (n > 0) buffer_.append(piece, 0, static_cast<std::size_t>(n));
  session_->poke();
}

io::awaitable<Result<std::size_t>> SshStream::read(std::span<char> into) {
  for (;;) {
    if (closed_) co_return fail(ErrorKind::kClosed, "the stream is closed");
    if (taken_ == buffer_.size()) {
      buffer_.clear();
      taken_ = 0;
      pull();
      // There is no end to what a host may send: others get their turn.
      if (!buffer_.empty()) co_await io::asio::post(session_->executor(), io::tok);
    }
    if (closed_) continue;
    if (taken_ < buffer_.size()) {
      const std::size_t n = std::min(into.size(), buffer_.size() - taken_);
      std::copy_n(buffer_.data() + taken_, n, into.data());
      taken_ += n;
      co_return n;
    }
    if (remote_closed_ || !session_->alive()) co_return std::size_t{0};
    co_await session_->wait(arrived_);
  }
}

io::awaitable<Result<void>> SshStream::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (closed_) co_return fail(ErrorKind::kClosed, "the stream is closed");
    if (!session_->alive()) co_return tl::unexpected(session_->why());
    if (remote_closed_) co_return fail(ErrorKind::kClosed, "the command has ended");
    // One piece at a time: what the network does not take would pile up inside libssh.
    if (!session_->write_pending()) {
      const auto piece = static_cast<std::uint32_t>(std::min(bytes.size(), kWritePiece));
      const int n = ssh_channel_write(channel_, bytes.data(), piece);
      session_->poke();
      if (n < 0) {
        if (!session_->alive()) co_return tl::unexpected(session_->why());
        co_return fail(ErrorKind::kClosed, "write: {}", session_->last_error());
      }
      bytes.remove_prefix(static_cast<std::size_t>(n));
      if (n > 0) continue;
    }
    co_await session_->changed();
  }
  co_return Result<void>();
}

void SshStream::finish_writing() {
  if (closed_ || !session_->alive()) return;
  ssh_channel_send_eof(channel_);
  session_->poke();
}

void SshStream::close() {
  if (closed_) return;
  closed_ = true;
  stderr_.close();
  arrived_.cancel();
  if (!session_->alive()) return;
  // libssh would close the other side's channel 0 in place of a channel that was never opened.
  if (ssh_channel_is_open(channel_) != 0 || remote_closed_) ssh_channel_close(channel_);
  session_->notify();
  session_->poke();
}

Error SshStream::no_exit_code() const {
  if (!session_->alive()) return session_->why();
  return {ErrorKind::kUnavailable, "the command ended without an exit code"};
}

}  // namespace dt::launcher
