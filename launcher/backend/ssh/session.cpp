#include "launcher/backend/ssh/session.h"

#include <fcntl.h>
#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <libssh/server.h>  // ssh_send_keepalive
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace dt::launcher {
namespace {

constexpr std::size_t kReadAhead = std::size_t{1} << 20;
constexpr std::size_t kStderrTail = 8192;
/// Handed to libssh at once; it copies what it cannot send.
constexpr std::size_t kWritePiece = std::size_t{64} << 10;

/// RFC 4254, section 6.10; TERM for a name it does not have.
int signal_number(std::string_view name) {
  static constexpr std::pair<std::string_view, int> kNames[] = {
      {"ABRT", SIGABRT}, {"ALRM", SIGALRM}, {"FPE", SIGFPE},   {"HUP", SIGHUP},   {"ILL", SIGILL},
      {"INT", SIGINT},   {"KILL", SIGKILL}, {"PIPE", SIGPIPE}, {"QUIT", SIGQUIT}, {"SEGV", SIGSEGV},
      {"TERM", SIGTERM}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}};
  for (const auto& [known, number] : kNames)
    if (name == known) return number;
  return SIGTERM;
}

}  // namespace

static_assert(SshSession::kDied == SSH_ERROR);

struct SshSession::Libssh {
  ssh_session session = ssh_new();
  ssh_event event = nullptr;
  ssh_counter_struct packet_bytes{};
  ssh_counter_struct raw_bytes{};
  ssh_callbacks_struct callbacks{};

  Libssh() = default;
  Libssh(const Libssh&) = delete;
  Libssh& operator=(const Libssh&) = delete;
  ~Libssh() {
    if (event != nullptr) {
      ssh_event_remove_session(event, session);
      ssh_event_free(event);
    }
    ssh_free(session);  // closes the socket
  }
};

struct SshStream::Callbacks {
  ssh_channel_callbacks_struct table{};
};

SshSession::SshSession(io::asio::any_io_executor executor)
    : executor_(std::move(executor)),
      lib_(std::make_unique<Libssh>()),
      descriptor_(executor_),
      wake_(executor_, io::asio::steady_timer::time_point::max()),
      alive_timer_(executor_) {}

Result<std::shared_ptr<SshSession>> SshSession::make(io::asio::any_io_executor executor) {
  std::shared_ptr<SshSession> session(new SshSession(std::move(executor)));
  if (session->raw() == nullptr) return fail(ErrorKind::kIo, "libssh: out of memory");
  ssh_set_blocking(session->raw(), 0);
  ssh_set_counters(session->raw(), &session->lib_->raw_bytes, &session->lib_->packet_bytes);
  return session;
}

SshSession::~SshSession() = default;

ssh_session_struct* SshSession::raw() { return lib_->session; }

std::string SshSession::last_error() const {
  const char* text = ssh_get_error(lib_->session);
  return text != nullptr && *text != '\0' ? text : "connection closed";
}

io::awaitable<Result<void>> SshSession::handshake(io::Fd socket) {
  const int copy = ::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) co_return tl::unexpected(errno_error(errno, "duplicate a socket"));
  descriptor_.assign(copy);
  int fd = socket.release();
  ssh_options_set(lib_->session, SSH_OPTIONS_FD, &fd);
  started_ = true;
  auto connect = [this, copy] {
    const int rc = ssh_connect(lib_->session);
    // ssh_connect makes the socket it was given blocking.
    ::fcntl(copy, F_SETFL, ::fcntl(copy, F_GETFL) | O_NONBLOCK);
    return rc;
  };
  const int rc = co_await repeat(connect, SSH_AGAIN);
  if (rc != SSH_OK) {
    if (!dead_) close({ErrorKind::kUnavailable, last_error()});
    before_banner_ =
        why_.kind == ErrorKind::kUnavailable && ssh_get_serverbanner(lib_->session) == nullptr;
    co_return tl::unexpected(why_);
  }
  lib_->event = ssh_event_new();
  if (lib_->event == nullptr || ssh_event_add_session(lib_->event, lib_->session) != SSH_OK)
    co_return fail(ErrorKind::kIo, "libssh: out of memory");
  arm();
  co_return Result<void>();
}

io::awaitable<void> SshSession::changed() {
  if (!dead_) co_await wake_.async_wait(io::tok);
}

bool SshSession::write_pending() const {
  return !dead_ && (ssh_get_poll_flags(lib_->session) & SSH_WRITE_PENDING) != 0;
}

void SshSession::poke() {
  if (dead_ || busy_ || !started_) return;
  if (ssh_get_fd(lib_->session) < 0 ||
      (lib_->event != nullptr && ssh_is_connected(lib_->session) == 0)) {
    died();
    return;
  }
  if (lib_->raw_bytes.in_bytes != seen_in_ || lib_->raw_bytes.out_bytes != seen_out_) {
    seen_in_ = lib_->raw_bytes.in_bytes;
    seen_out_ = lib_->raw_bytes.out_bytes;
    notify();
  }
  arm();
}

void SshSession::set_busy(bool busy) {
  busy_ = busy;
  if (!busy) poke();
}

void SshSession::arm() {
  if (dead_ || busy_) return;
  // sshd's small packets would wait for our delayed acknowledgement: 40 ms each. The kernel
  // forgets this setting, so it is renewed before each wait.
  const int one = 1;
  ::setsockopt(descriptor_.native_handle(), IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
  if (!reading_) {
    reading_ = true;
    descriptor_.async_wait(io::asio::posix::descriptor_base::wait_read,
                           [self = shared_from_this()](const boost::system::error_code& ec) {
                             self->reading_ = false;
                             self->on_ready(ec);
                           });
  }
  if (!writing_ && write_pending()) {
    writing_ = true;
    descriptor_.async_wait(io::asio::posix::descriptor_base::wait_write,
                           [self = shared_from_this()](const boost::system::error_code& ec) {
                             self->writing_ = false;
                             self->on_ready(ec);
                           });
  }
}

void SshSession::on_ready(const boost::system::error_code& ec) {
  if (ec || dead_ || busy_) return;
  if (lib_->event != nullptr) {
    pump();
  } else {
    // Before the end of the handshake only ssh_connect, called again, may move the session.
    notify();
  }
}

void SshSession::pump() {
  // Each turn reads 4 kB at most; streams take theirs by callbacks meanwhile.
  std::uint64_t before = 0;
  do {
    before = lib_->raw_bytes.in_bytes;
    ssh_event_dopoll(lib_->event, 0);
  } while (ssh_get_fd(lib_->session) >= 0 && lib_->raw_bytes.in_bytes != before);
  notify();
  poke();
}

void SshSession::died() {
  close({ErrorKind::kUnavailable, fmt::format("the connection ended: {}", last_error())});
}

void SshSession::close(Error why) {
  if (dead_) return;
  dead_ = true;
  why_ = std::move(why);
  accept_agent_ = nullptr;
  if (descriptor_.is_open()) {
    ::shutdown(descriptor_.native_handle(), SHUT_RDWR);
    boost::system::error_code ignored;
    descriptor_.close(ignored);
  }
  alive_timer_.cancel();
  notify();
}

void SshSession::keep_alive(Duration interval, int count_max) {
  alive_interval_ = interval;
  alive_count_max_ = std::max(1, count_max);
  alive_seen_ = lib_->raw_bytes.in_bytes;
  alive_missed_ = 0;
  if (interval > Duration::zero()) alive_tick();
}

void SshSession::alive_tick() {
  alive_timer_.expires_after(alive_interval_);
  auto tick = [weak = weak_from_this()](const boost::system::error_code& ec) {
    const auto self = weak.lock();
    if (ec || !self || self->dead_) return;
    if (self->lib_->raw_bytes.in_bytes != self->alive_seen_) {
      self->alive_seen_ = self->lib_->raw_bytes.in_bytes;
      self->alive_missed_ = 0;
    } else if (++self->alive_missed_ > self->alive_count_max_) {
      const auto silent = std::chrono::duration<double>(self->alive_interval_).count() *
                          (self->alive_count_max_ + 1);
      self->close(
          {ErrorKind::kTimeout,
           fmt::format("no sign of life for {:.0f} s: the connection was given up", silent)});
      return;
    } else if (!self->busy_) {
      // While one is unanswered the call only looks for the answer; a first result other than
      // "again" is the answer of the one before.
      if (ssh_send_keepalive(self->lib_->session) != SSH_AGAIN)
        ssh_send_keepalive(self->lib_->session);
      self->poke();
    }
    if (!self->dead_) self->alive_tick();
  };
  alive_timer_.async_wait(std::move(tick));
}

void SshSession::on_agent_channel(std::function<void(ssh_channel)> accept) {
  accept_agent_ = std::move(accept);
  lib_->callbacks.userdata = this;
  lib_->callbacks.channel_open_request_auth_agent_function = [](ssh_session raw,
                                                                void* self) -> ssh_channel {
    auto& session = *static_cast<SshSession*>(self);
    if (!session.accept_agent_) return nullptr;
    ssh_channel channel = ssh_channel_new(raw);
    if (channel != nullptr) session.accept_agent_(channel);
    return channel;
  };
  ssh_callbacks_init(&lib_->callbacks);
  ssh_set_callbacks(lib_->session, &lib_->callbacks);
}

Watchdog::Watchdog(const std::shared_ptr<SshSession>& session, Duration limit, Error why)
    : armed_(std::make_shared<bool>(true)), timer_(session->executor(), limit) {
  timer_.async_wait([armed = armed_, weak = std::weak_ptr(session),
                     why = std::move(why)](const boost::system::error_code& ec) {
    const auto alive = weak.lock();
    if (!ec && *armed && alive) alive->close(why);
  });
}

Watchdog::~Watchdog() { *armed_ = false; }

SshStream::SshStream(std::shared_ptr<SshSession> session, ssh_channel channel,
                     std::shared_ptr<void> lease)
    : session_(std::move(session)),
      channel_(channel),
      lease_(std::move(lease)),
      callbacks_(std::make_unique<Callbacks>()) {
  ssh_channel_callbacks_struct& table = callbacks_->table;
  table.userdata = this;
  table.channel_data_function = &SshStream::on_data;
  table.channel_close_function = [](ssh_session, ssh_channel, void* self) {
    static_cast<SshStream*>(self)->remote_closed_ = true;
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
  ssh_remove_channel_callbacks(channel_, &callbacks_->table);
  // A dead session's channels are freed with it.
  if (session_->alive()) {
    ssh_channel_free(channel_);
    session_->poke();
  }
}

io::awaitable<Result<std::unique_ptr<SshStream>>> SshStream::exec(
    std::shared_ptr<SshSession> session, std::string command, bool forward_agent, Duration deadline,
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

int SshStream::on_data(ssh_session, ssh_channel, void* data, std::uint32_t size, int is_stderr,
                       void* self) {
  auto& stream = *static_cast<SshStream*>(self);
  const std::string_view bytes(static_cast<const char*>(data), size);
  if (is_stderr != 0) {
    stream.stderr_.append(bytes);
    if (stream.stderr_.size() > 2 * kStderrTail)
      stream.stderr_.erase(0, stream.stderr_.size() - kStderrTail);
    return static_cast<int>(size);
  }
  // What is not taken stays in libssh's buffer and closes the window to the sender.
  if (stream.buffer_.size() - stream.taken_ >= kReadAhead) {
    stream.overflowed_ = true;
    return 0;
  }
  stream.buffer_.append(bytes);
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
    }
    if (taken_ < buffer_.size()) {
      const std::size_t n = std::min(into.size(), buffer_.size() - taken_);
      std::copy_n(buffer_.data() + taken_, n, into.data());
      taken_ += n;
      co_return n;
    }
    if (remote_closed_ || !session_->alive()) co_return std::size_t{0};
    co_await session_->changed();
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
  if (!session_->alive()) return;
  // Of a channel that was never opened libssh would close number 0 of the other side: another one.
  if (ssh_channel_is_open(channel_) != 0 || remote_closed_) ssh_channel_close(channel_);
  session_->notify();
  session_->poke();
}

Error SshStream::no_exit_code() const {
  if (!session_->alive()) return session_->why();
  return {ErrorKind::kUnavailable, "the command ended without an exit code"};
}

std::string SshStream::stderr_tail() const {
  std::string text = stderr_;
  if (text.size() > kStderrTail) text.erase(0, text.size() - kStderrTail);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.pop_back();
  return text;
}

void SshStream::unread(std::string bytes) {
  buffer_.replace(0, taken_, bytes);
  taken_ = 0;
}

}  // namespace dt::launcher
