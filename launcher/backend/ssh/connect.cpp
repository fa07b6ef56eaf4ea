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
    hint = !target.config.proxy_command.empty()
               ? " (before sshd's first word, and its ProxyCommand runs on)"
               : " (before sshd's first word: MaxStartups of sshd, or a firewall?)";
  return {error.kind, fmt::format("{}: handshake: {}{}", target.written, error.message, hint)};
}

Error proxy_error(const Target& target, const std::string& end, bool is_absent) {
  const char* remedy = is_absent ? ": is the program installed on this machine?" : "";
  return {is_absent ? ErrorKind::kInvalid : ErrorKind::kUnavailable,
          fmt::format("{}: ProxyCommand: {}{}", target.written, end, remedy)};
}

/// Closes a session that did not get as far as its login, also when the attempt is cancelled:
/// a wait on its socket would keep it open.
struct Unfinished {
  SessionPtr session;
  ~Unfinished() {
    if (session) session->close({ErrorKind::kClosed, "the connection was given up"});
  }
};

/// The permit, given back after `limit` even if it is still held.
io::Semaphore::Permit for_at_most(Duration limit, io::Semaphore::Permit permit,
                                  const asio::any_io_executor& executor) {
  struct Turn {
    io::Semaphore::Permit permit;
    asio::steady_timer timer;
  };
  auto turn = std::make_shared<Turn>(std::move(permit), asio::steady_timer(executor, limit));
  turn->timer.async_wait([weak = std::weak_ptr(turn)](const boost::system::error_code& ec) {
    const auto held = weak.lock();
    if (!ec && held) held->permit.reset();
  });
  return turn;
}

}  // namespace

Connector::Connector(asio::any_io_executor executor, const Targets& targets,
                     const SshLimits& limits, io::ThreadPool& threads, io::ThreadPool& lookups,
                     OnceLog& log, OpenSsh& openssh)
    : executor_(std::move(executor)),
      targets_(&targets),
      limits_(&limits),
      threads_(&threads),
      lookups_(&lookups),
      host_keys_(log),
      jump_hosts_(executor_, targets.options(), log, openssh,
                  [this](Target hop, JumpHosts::Path path) {
                    return connect_hop(std::move(hop), std::move(path));
                  }),
      in_flight_(std::make_shared<io::Semaphore>(executor_, limits.in_flight)) {}

std::shared_ptr<io::Semaphore> Connector::permits_for(const Target& target, const Way& way) {
  const SshHostConfig& config = target.config;
  std::string place = config.proxy_written;  // the same for all hosts behind one machine
  if (!way.endpoints.empty())
    place = fmt::format("{}:{}", way.endpoints.front().address().to_string(), target.port);
  if (way.carrier) place = fmt::format("{}/{}:{}", config.proxy_jump, target.hostname, target.port);
  auto& permits = permits_[place];
  if (!permits) permits = std::make_shared<io::Semaphore>(executor_, limits_->per_address);
  return permits;
}

awaitable<Result<SessionPtr>> Connector::connect_hop(Target hop, JumpHosts::Path path) {
  auto connected = co_await connect_at(std::move(hop), std::move(path));
  if (!connected) co_return tl::unexpected(connected.error());
  co_return std::move(connected->session);
}

awaitable<Result<Connector::Way>> Connector::find_way(Target target, JumpHosts::Path path) {
  Way way;
  if (!target.config.proxy_jump.empty()) {
    auto carrier = co_await jump_hosts_.session(target, std::move(path));
    if (!carrier) co_return tl::unexpected(carrier.error());
    way.carrier = std::move(*carrier);
  } else if (!target.is_proxied()) {
    auto found = co_await resolve(target, targets_->options().connect_timeout, *lookups_);
    if (!found) co_return tl::unexpected(found.error());
    way.endpoints = std::move(*found);
  }
  co_return std::move(way);
}

awaitable<Result<Dialed>> Connector::dial_by(Way way, Target target) {
  const Duration silence = limits_->alive_interval * (limits_->alive_count_max + 1);
  if (!way.carrier) co_return co_await dial(target, way.endpoints, targets_->options(), silence);
  auto socket = co_await jump_hosts_.dial(way.carrier, target, targets_->options().connect_timeout);
  if (!socket) co_return tl::unexpected(socket.error());
  Dialed dialed{std::move(*socket), target.hostname, nullptr};
  co_return std::move(dialed);
}

awaitable<Result<Connection>> Connector::connect_at(Target target, JumpHosts::Path path) {
  auto way = co_await find_way(target, std::move(path));
  if (!way) co_return tl::unexpected(way.error());
  const auto permits = permits_for(target, *way);
  for (int attempt = 1;; ++attempt) {
    io::Semaphore::Permit here = co_await permits->acquire();
    io::Semaphore::Permit overall = co_await in_flight_->acquire();
    if (!target.config.proxy_command.empty())
      here = for_at_most(limits_->proxy_turn, std::move(here), executor_);
    bool is_dropped = false;
    auto connected = co_await try_connect(target, *way, is_dropped);
    if (!is_dropped || attempt == kBannerTries) co_return connected;
    // sshd's MaxStartups drops some of many connections at once: try again at another time.
    here.reset();
    overall.reset();
    const int most_ms = std::min(50 << attempt, 2000);
    const std::chrono::milliseconds pause(std::uniform_int_distribution<int>(20, most_ms)(random_));
    co_await io::sleep_for(pause);
  }
}

awaitable<Result<Connection>> Connector::try_connect(const Target& target, const Way& way,
                                                     bool& is_dropped) {
  auto dialed = co_await dial_by(way, target);
  if (!dialed) co_return tl::unexpected(dialed.error());
  auto made = SshSession::make(executor_);
  if (!made) co_return tl::unexpected(phase_error(target, "connect", made.error()));
  const SessionPtr session = std::move(*made);
  Unfinished unfinished{session};
  const std::shared_ptr<ProxyCommand> proxy = dialed->proxy;
  session->keep(proxy);
  session->carried_by(way.carrier);
  if (auto set = targets_->configure(*session, target, host_keys_.types(target)); !set)
    co_return tl::unexpected(phase_error(target, "options", set.error()));

  Error late{ErrorKind::kTimeout,
             fmt::format("nothing more from {} port {} for {:.1f} s: does something other than "
                         "sshd listen there, or is the machine overloaded?",
                         dialed->address, target.port, seconds(limits_->handshake))};
  const Watchdog watchdog(session, limits_->handshake, std::move(late));
  auto shaken = co_await session->handshake(std::move(dialed->socket));
  if (!shaken) {
    is_dropped = session->before_banner() && (!way.carrier || way.carrier->alive());
    std::string end;
    if (is_dropped && proxy) end = co_await proxy->end();
    if (!end.empty()) {
      is_dropped = !proxy->is_absent();
      co_return tl::unexpected(proxy_error(target, end, proxy->is_absent()));
    }
    co_return tl::unexpected(handshake_error(target, shaken.error(), is_dropped));
  }
  auto logged_in = co_await log_in(session, target);
  if (!logged_in) co_return tl::unexpected(logged_in.error());
  Connection connection;
  connection.session = std::move(unfinished.session);
  if (!target.is_proxied()) connection.address = std::move(dialed->address);
  co_return std::move(connection);
}

awaitable<Result<void>> Connector::log_in(SessionPtr session, const Target& target) {
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
