#include "launcher/backend/ssh/connect.h"

#include <algorithm>

#include "launcher/backend/ssh/auth.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;
using io::awaitable;
using namespace std::chrono_literals;

/// Tries of a connection that sshd drops before its banner.
constexpr int kBannerTries = 8;
/// The longest that an ssh-agent may take for one answer.
constexpr Duration kAgentDeadline = 15s;

Error handshake_error(const Target& target, const Error& error, bool is_dropped) {
  const char* hint = "";
  if (is_dropped)
    hint = target.is_proxied()
               ? " (before sshd's first word; the ProxyCommand's own words are in the log)"
               : " (before sshd's first word: MaxStartups of sshd, or a firewall?)";
  return {error.kind, fmt::format("{}: handshake: {}{}", target.written, error.message, hint)};
}

/// Closes a session that did not get as far as its login, also when the attempt is cancelled:
/// a wait on its socket would keep it open.
struct Unfinished {
  std::shared_ptr<SshSession> session;
  ~Unfinished() {
    if (session) session->close({ErrorKind::kClosed, "the connection was given up"});
  }
};

}  // namespace

Connector::Connector(asio::any_io_executor executor, const Targets& targets,
                     const SshLimits& limits, ThreadPool& threads, OnceLog& log)
    : executor_(std::move(executor)),
      targets_(&targets),
      limits_(&limits),
      threads_(&threads),
      host_keys_(log),
      in_flight_(std::make_shared<Semaphore>(executor_, limits.in_flight)) {}

std::shared_ptr<Semaphore> Connector::permits_for(const Target& target,
                                                  const Endpoints& endpoints) {
  const std::string& jump = target.config.proxy_jump;
  const std::string place = !target.is_proxied() ? endpoints.front().address().to_string()
                            : jump.empty()       ? target.hostname
                                                 : "jump " + jump;
  auto& permits = per_address_[fmt::format("{}:{}", place, jump.empty() ? target.port : 0)];
  if (!permits) permits = std::make_shared<Semaphore>(executor_, limits_->per_address);
  return permits;
}

awaitable<Result<Connection>> Connector::connect(Target target) {
  Endpoints endpoints;
  if (!target.is_proxied()) {
    auto found = co_await resolve(target, targets_->options().connect_timeout, *threads_);
    if (!found) co_return tl::unexpected(found.error());
    endpoints = std::move(*found);
  }
  const auto permits = permits_for(target, endpoints);
  for (int attempt = 1;; ++attempt) {
    Semaphore::Permit here = co_await permits->acquire();
    Semaphore::Permit overall = co_await in_flight_->acquire();
    bool is_dropped = false;
    auto connected = co_await try_connect(target, endpoints, is_dropped);
    if (!is_dropped || attempt == kBannerTries) co_return connected;
    // sshd's MaxStartups drops some of many connections at once: try again at another time.
    here.reset();
    overall.reset();
    const int most_ms = std::min(50 << attempt, 2000);
    const std::chrono::milliseconds pause(std::uniform_int_distribution<int>(20, most_ms)(random_));
    co_await io::sleep_for(pause);
  }
}

awaitable<Result<Connection>> Connector::try_connect(const Target& target,
                                                     const Endpoints& endpoints, bool& is_dropped) {
  const Duration silence = limits_->alive_interval * (limits_->alive_count_max + 1);
  auto dialed = co_await dial(target, endpoints, targets_->options(), silence);
  if (!dialed) co_return tl::unexpected(dialed.error());
  auto made = SshSession::make(executor_);
  if (!made) co_return tl::unexpected(phase_error(target, "connect", made.error()));
  const std::shared_ptr<SshSession> session = std::move(*made);
  Unfinished unfinished{session};
  session->keep(std::move(dialed->proxy));
  if (auto set = targets_->configure(*session, target, host_keys_.types(target)); !set)
    co_return tl::unexpected(phase_error(target, "options", set.error()));

  Error late{ErrorKind::kTimeout,
             fmt::format("nothing more from {} port {} for {:.1f} s: does something other than "
                         "sshd listen there, or is the machine overloaded?",
                         dialed->address, target.port, seconds(limits_->handshake))};
  const Watchdog watchdog(session, limits_->handshake, std::move(late));
  auto shaken = co_await session->handshake(std::move(dialed->socket));
  if (!shaken) {
    is_dropped = session->before_banner();
    co_return tl::unexpected(handshake_error(target, shaken.error(), is_dropped));
  }
  auto logged_in = co_await log_in(session, target);
  if (!logged_in) co_return tl::unexpected(logged_in.error());
  Connection connection;
  connection.session = std::move(unfinished.session);
  connection.address = std::move(dialed->address);
  co_return std::move(connection);
}

awaitable<Result<void>> Connector::log_in(std::shared_ptr<SshSession> session,
                                          const Target& target) {
  if (auto checked = host_keys_.check(*session, target); !checked)
    co_return tl::unexpected(phase_error(target, "host key", checked.error()));
  AuthPlan plan =
      targets_->auth_plan(target, std::min<Duration>(limits_->handshake * 3 / 4, kAgentDeadline));
  auto proven = co_await authenticate(session, std::move(plan), keys_, *threads_);
  if (!proven) co_return tl::unexpected(phase_error(target, "authentication", proven.error()));
  const SshHostConfig& config = target.config;
  session->keep_alive(
      config.alive_interval > Duration::zero() ? config.alive_interval : limits_->alive_interval,
      config.alive_count_max > 0 ? config.alive_count_max : limits_->alive_count_max);
  co_return Result<void>();
}

}  // namespace dt::launcher
