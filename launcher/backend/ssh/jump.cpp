#include "launcher/backend/ssh/jump.h"

#include <algorithm>

#include "core/base/number.h"
#include "io/byte_stream.h"
#include "launcher/backend/ssh/splice.h"
#include "launcher/backend/ssh/stream.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;
using io::awaitable;
using namespace std::chrono_literals;

/// A jump host that was not reached is not tried again for so long: all hosts behind it would.
constexpr auto kPause = 1s;

/// A tunnel while it is being opened.
struct Opening {
  explicit Opening(const asio::any_io_executor& executor) : done(executor) {}
  std::optional<Result<SshStreamPtr>> result;
  asio::steady_timer done;
};

/// Not cancelled when nobody waits any more: then the tunnel closes as soon as it is open.
awaitable<void> open_tunnel(SessionPtr carrier, std::string host, std::uint16_t port,
                            std::shared_ptr<Opening> opening) {
  auto stream = co_await SshStream::tunnel(std::move(carrier), std::move(host), port);
  opening->result.emplace(std::move(stream));
  opening->done.cancel();
}

/// Jump hosts have their user and port in the list or the ssh config.
io::SshOptions for_jump_hosts(io::SshOptions options) {
  options.user.clear();
  options.port = 0;
  return options;
}

}  // namespace

Result<Host> parse_jump(std::string_view text) {
  const std::string_view whole = text;
  if (text.starts_with("ssh://")) text.remove_prefix(6);
  Host host;
  if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
    host.user = std::string(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  const std::size_t colon = text.rfind(':');
  const bool in_brackets = text.starts_with('[');
  const bool has_port =
      colon != std::string_view::npos &&
      (in_brackets ? colon > 0 && text[colon - 1] == ']' : text.find(':') == colon);
  if (has_port) {
    const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
    if (!port || *port == 0)
      return fail(ErrorKind::kInvalid, "ProxyJump {}: the port is no number up to 65535", whole);
    host.port = *port;
    text = text.substr(0, colon);
  }
  if (in_brackets && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  if (text.empty()) return fail(ErrorKind::kInvalid, "ProxyJump {}: it names no host", whole);
  host.name = std::string(text);
  return host;
}

JumpHosts::JumpHosts(asio::any_io_executor executor, io::SshOptions options, OnceLog& log,
                     OpenSsh& openssh, Connect connect)
    : executor_(std::move(executor)),
      targets_(for_jump_hosts(std::move(options)), log, openssh),
      connect_(std::move(connect)) {}

awaitable<Result<Target>> JumpHosts::last_hop(std::string jumps) {
  const std::size_t comma = jumps.rfind(',');
  const bool is_only = comma == std::string::npos;
  const auto host = parse_jump(std::string_view(jumps).substr(is_only ? 0 : comma + 1));
  if (!host) co_return tl::unexpected(host.error());
  auto hop = co_await targets_.find(*host);
  if (!hop) co_return tl::unexpected(hop.error());
  SshHostConfig& config = hop->config;
  if (!is_only) {
    config.proxy_jump = jumps.substr(0, comma);
    config.proxy_command.clear();
  } else if (const auto own = parse_jump(config.proxy_jump); own && own->name == host->name) {
    config.proxy_jump.clear();  // a block for all hosts is for the jump host, too
  }
  co_return std::move(*hop);
}

awaitable<Result<SessionPtr>> JumpHosts::session(Target target, Path path) {
  auto hop = co_await last_hop(target.config.proxy_jump);
  if (!hop) co_return tl::unexpected(phase_error(target, "jump host", hop.error()));
  auto found = co_await shared_session(std::move(*hop), std::move(path));
  if (!found) co_return tl::unexpected(phase_error(target, "jump host", found.error()));
  co_return std::move(*found);
}

awaitable<Result<SessionPtr>> JumpHosts::shared_session(Target hop, Path path) {
  std::string key = fmt::format("{}@{}:{}|{}|{}", hop.user, hop.hostname, hop.port,
                                hop.config.proxy_jump, hop.config.proxy_command);
  // It would wait for itself.
  if (std::ranges::count(path, key) > 0)
    co_return fail(ErrorKind::kInvalid,
                   "{}: ProxyJump leads in a circle: give one of these hosts `ProxyJump none` in "
                   "the ssh config",
                   hop.written);
  std::shared_ptr<Shared>& at = shared_[key];
  if (!at) at = std::make_shared<Shared>(executor_);
  const std::shared_ptr<Shared> shared = at;
  path.push_back(std::move(key));
  const io::Semaphore::Permit turn = co_await shared->turn->acquire();
  if (shared->session && shared->session->alive()) co_return shared->session;
  const bool failed_just_now =
      shared->error && std::chrono::steady_clock::now() - shared->failed_at < kPause;
  if (failed_just_now) co_return tl::unexpected(*shared->error);
  shared->error.reset();
  shared->session.reset();
  auto connected = co_await connect_(std::move(hop), std::move(path));
  if (connected) {
    shared->session = *connected;
  } else {
    shared->error = connected.error();
    shared->failed_at = std::chrono::steady_clock::now();
  }
  co_return connected;
}

awaitable<Result<io::Fd>> JumpHosts::dial(SessionPtr carrier, Target target, Duration limit) {
  auto opening = std::make_shared<Opening>(executor_);
  auto work = open_tunnel(carrier, target.hostname, target.port, opening);
  asio::co_spawn(executor_, std::move(work), [](std::exception_ptr) {});
  opening->done.expires_after(limit);
  if (!opening->result) co_await opening->done.async_wait(io::tok);
  const std::string phase = "connect to " + target.hostname + " by way of its jump host";
  if (!opening->result)
    co_return fail(ErrorKind::kTimeout, "{}: {}: no answer within {:.1f} s", target.written, phase,
                   seconds(limit));
  auto& stream = *opening->result;
  if (!stream) co_return tl::unexpected(phase_error(target, phase, stream.error()));
  auto pair = io::make_socket_pair();
  if (!pair) co_return tl::unexpected(phase_error(target, phase, pair.error()));
  io::UnixSocket ours(executor_, asio::local::stream_protocol(), pair->ours.release());
  auto carried = splice(std::move(*stream), std::move(ours));
  asio::co_spawn(executor_, std::move(carried), [](std::exception_ptr) {});
  co_return std::move(pair->theirs);
}

}  // namespace dt::launcher
