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

#include "io/at_end.h"

namespace dt::launcher {

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

SshSession::SshSession(io::asio::any_io_executor executor)
    : executor_(std::move(executor)),
      lib_(std::make_unique<Libssh>()),
      descriptor_(executor_),
      wake_(executor_, io::kNever),
      alive_timer_(executor_) {}

Result<SessionPtr> SshSession::make(io::asio::any_io_executor executor) {
  SessionPtr session(new SshSession(std::move(executor)));
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
    if (!dead_) close({ErrorKind::kUnavailable, end_reason()});
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

io::awaitable<void> SshSession::wait(io::asio::steady_timer& timer) {
  if (dead_) co_return;
  timers_.insert(&timer);
  const io::AtEnd waiting([this, &timer] { timers_.erase(&timer); });
  co_await timer.async_wait(io::tok);
}

bool SshSession::write_pending() const {
  return !dead_ && (ssh_get_poll_flags(lib_->session) & SSH_WRITE_PENDING) != 0;
}

void SshSession::poke() {
  if (dead_ || busy_ || !started_) return;
  if (ssh_get_fd(lib_->session) < 0 ||
      (lib_->event != nullptr && ssh_is_connected(lib_->session) == 0)) {
    close({ErrorKind::kUnavailable, fmt::format("the connection ended: {}", end_reason())});
    return;
  }
  if (lib_->raw_bytes.in_bytes != seen_in_ || lib_->raw_bytes.out_bytes != seen_out_) {
    seen_in_ = lib_->raw_bytes.in_bytes;
    seen_out_ = lib_->raw_bytes.out_bytes;
    notify();
  }
  arm();
}

std::string SshSession::end_reason() const {
  return carrier_ && !carrier_->alive() ? "its jump host: " + carrier_->why().message
                                        : last_error();
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
  await_socket(Descriptor::wait_read, reading_);
  if (write_pending()) await_socket(Descriptor::wait_write, writing_);
}

void SshSession::await_socket(Descriptor::wait_type what, bool& is_waiting) {
  if (std::exchange(is_waiting, true)) return;
  auto ready = [self = shared_from_this(), &is_waiting](const boost::system::error_code& ec) {
    is_waiting = false;
    self->on_ready(ec);
  };
  descriptor_.async_wait(what, std::move(ready));
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
  for (io::asio::steady_timer* timer : timers_) timer->cancel();
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
      const auto silent = seconds(self->alive_interval_) * (self->alive_count_max_ + 1);
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

Watchdog::Watchdog(const SessionPtr& session, Duration limit, Error why)
    : armed_(std::make_shared<bool>(true)), timer_(session->executor(), limit) {
  timer_.async_wait([armed = armed_, weak = std::weak_ptr(session),
                     why = std::move(why)](const boost::system::error_code& ec) {
    const auto alive = weak.lock();
    if (!ec && *armed && alive) alive->close(why);
  });
}

Watchdog::~Watchdog() { *armed_ = false; }

}  // namespace dt::launcher
