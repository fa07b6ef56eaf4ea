#include "launcher/backend/ssh/ssh_agent.h"

#include <libssh/libssh.h>

#include <array>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "io/byte_stream.h"
#include "io/task_group.h"
#include "io/within.h"
#include "launcher/backend/ssh/ssh_bytes.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;

// The agent protocol, draft-miller-ssh-agent.
constexpr char kAgentFailure = 5;
constexpr char kRequestIdentities = 11;
constexpr char kIdentitiesAnswer = 12;
constexpr char kSignRequest = 13;
constexpr std::size_t kMaxAgentFrame = std::size_t{256} << 10;

/// A frame of the agent protocol without its length.
io::awaitable<Result<std::string>> read_frame(io::UnixSocket& socket) {
  std::array<char, 4> head{};
  const auto head_buffer = asio::buffer(head);
  auto [ec, n] = co_await asio::async_read(socket, head_buffer, io::tok);
  if (ec) co_return tl::unexpected(io::asio_error(ec, "ssh-agent"));
  const std::size_t size = get_u32(std::string_view(head.data(), head.size()));
  if (size == 0 || size > kMaxAgentFrame)
    co_return fail(ErrorKind::kProtocol, "ssh-agent: a frame of {} bytes", size);
  std::string body(size, '\0');
  const auto body_buffer = asio::buffer(body);
  auto [ec2, n2] = co_await asio::async_read(socket, body_buffer, io::tok);
  if (ec2) co_return tl::unexpected(io::asio_error(ec2, "ssh-agent"));
  co_return std::move(body);
}

io::awaitable<Result<void>> write_frame(io::UnixSocket& socket, std::string body) {
  std::string frame;
  put_string(frame, body);
  const auto buffer = asio::buffer(frame);
  auto [ec, n] = co_await asio::async_write(socket, buffer, io::tok);
  if (ec) co_return tl::unexpected(io::asio_error(ec, "ssh-agent"));
  co_return Result<void>();
}

/// Connects and asks once.
io::awaitable<Result<std::string>> ask_agent(std::string path, std::string request) {
  io::UnixSocket socket(co_await asio::this_coro::executor);
  if (path.size() > 107) co_return fail(ErrorKind::kInvalid, "{}: too long for a socket", path);
  const asio::local::stream_protocol::endpoint endpoint(path);
  auto [ec] = co_await socket.async_connect(endpoint, io::tok);
  if (ec) co_return tl::unexpected(io::asio_error(ec, "ssh-agent at " + path));
  auto sent = co_await write_frame(socket, std::move(request));
  if (!sent) co_return tl::unexpected(sent.error());
  co_return co_await read_frame(socket);
}

/// A request to sign names a key: the agent knows a certificate that was offered in its key's stead
/// by that key alone.
void name_key(std::string& request, const std::vector<AgentIdentity>& identities) {
  std::string_view rest = std::string_view(request).substr(1);
  std::string offered;
  if (request.front() != kSignRequest || !take_string(rest, offered)) return;
  for (const AgentIdentity& identity : identities) {
    if (identity.held_as.empty() || identity.blob != offered) continue;
    std::string renamed(1, kSignRequest);
    put_string(renamed, identity.held_as);
    renamed += rest;
    request = std::move(renamed);
    return;
  }
}

/// Stands between libssh's agent code, which blocks on another thread, and the agent: lists the
/// chosen keys only, forwards requests to sign, and answers with a failure after the deadline.
struct Relay {
  io::UnixSocket client;
  std::string agent_path;
  std::vector<AgentIdentity> identities;
  Duration deadline;
  std::string problem;

  io::awaitable<void> run() {
    for (;;) {
      auto request = co_await read_frame(client);
      if (!request) break;
      std::string reply;
      if (request->front() == kRequestIdentities) {
        reply += kIdentitiesAnswer;
        put_u32(reply, identities.size());
        for (const AgentIdentity& identity : identities) {
          put_string(reply, identity.blob);
          put_string(reply, identity.comment);
        }
      } else {
        name_key(*request, identities);
        auto asked =
            co_await io::within(deadline, ask_agent(agent_path, std::move(*request)), "ssh-agent");
        if (asked) {
          reply = std::move(*asked);
        } else {
          problem = asked.error().message;
          reply += kAgentFailure;
        }
      }
      auto sent = co_await write_frame(client, std::move(reply));
      if (!sent) break;
    }
    boost::system::error_code ignored;
    client.close(ignored);
  }
};

}  // namespace

std::string AgentIdentity::base64() const { return encode_base64(blob); }

io::awaitable<Result<std::vector<AgentIdentity>>> agent_identities(std::string socket_path,
                                                                   Duration deadline) {
  std::string request(1, kRequestIdentities);
  auto reply = co_await io::within(deadline, ask_agent(socket_path, std::move(request)),
                                   "ssh-agent at " + socket_path);
  if (!reply) co_return tl::unexpected(reply.error());
  std::string_view rest = *reply;
  if (rest.size() < 5 || rest.front() != kIdentitiesAnswer)
    co_return fail(ErrorKind::kProtocol, "ssh-agent at {}: refuses to list its keys", socket_path);
  const std::uint32_t count = get_u32(rest.substr(1));
  rest.remove_prefix(5);
  std::vector<AgentIdentity> identities;
  for (std::uint32_t i = 0; i < count; ++i) {
    AgentIdentity identity;
    if (!take_string(rest, identity.blob) || !take_string(rest, identity.comment))
      co_return fail(ErrorKind::kProtocol, "ssh-agent at {}: garbled list of keys", socket_path);
    identities.push_back(std::move(identity));
  }
  co_return std::move(identities);
}

io::awaitable<int> authenticate_by_agent(SessionPtr session, std::string agent_socket,
                                         Duration deadline, std::vector<AgentIdentity> identities,
                                         io::ThreadPool& threads, std::string& problem) {
  auto pair = io::make_socket_pair();
  if (!pair) {
    problem = pair.error().message;
    co_return SSH_AUTH_ERROR;
  }
  if (ssh_set_agent_socket(session->raw(), pair->theirs.get()) != SSH_OK) {
    problem = session->last_error();
    co_return SSH_AUTH_ERROR;
  }
  static_cast<void>(pair->theirs.release());  // the session's now
  Relay relay{
      io::UnixSocket(session->executor(), asio::local::stream_protocol(), pair->ours.release()),
      agent_socket,
      std::move(identities),
      deadline,
      {}};
  // The relay lives in this frame: whatever happens, it is joined here.
  const bool throws = co_await asio::this_coro::throw_if_cancelled();
  co_await asio::this_coro::throw_if_cancelled(false);
  io::TaskGroup group(session->executor());
  group.spawn(relay.run());
  int rc = SSH_AUTH_AGAIN;
  while (session->alive()) {
    // The raw pointer: the session must not be destroyed on the other thread.
    std::function<int()> step = [raw = session->raw()] { return ssh_userauth_agent(raw, nullptr); };
    session->set_busy(true);
    rc = co_await threads.finish(std::move(step));
    session->set_busy(false);
    if (rc != SSH_AUTH_AGAIN || !session->alive()) break;
    co_await session->changed();
  }
  group.cancel();
  co_await group.join();
  problem = relay.problem;
  co_await asio::this_coro::throw_if_cancelled(throws);
  co_return rc;
}

}  // namespace dt::launcher
