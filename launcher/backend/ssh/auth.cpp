#include "launcher/backend/ssh/auth.h"

#include <libssh/libssh.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <fstream>
#include <sstream>

#include "io/task_group.h"
#include "io/within.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;

// The agent protocol, draft-miller-ssh-agent.
constexpr char kAgentFailure = 5;
constexpr char kRequestIdentities = 11;
constexpr char kIdentitiesAnswer = 12;
constexpr std::size_t kMaxAgentFrame = std::size_t{256} << 10;

void put_u32(std::string& out, std::size_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 0xff);
}

std::uint32_t get_u32(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

void put_string(std::string& out, std::string_view text) {
  put_u32(out, text.size());
  out += text;
}

bool take_string(std::string_view& bytes, std::string& into) {
  if (bytes.size() < 4) return false;
  const std::size_t size = get_u32(bytes);
  if (bytes.size() - 4 < size) return false;
  into = std::string(bytes.substr(4, size));
  bytes.remove_prefix(4 + size);
  return true;
}

std::string to_base64(std::string_view bytes) {
  static constexpr char kAlphabet[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kAlphabet[(group >> (18 - 6 * k)) & 63] : '=';
  }
  return out;
}

std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The base64 part of a public key file, "type base64 comment".
std::string public_part(const std::string& path) {
  std::istringstream words(file_text(path));
  std::string type;
  std::string base64;
  words >> type >> base64;
  return base64;
}

std::string exported(ssh_key key) {
  char* base64 = nullptr;
  if (ssh_pki_export_pubkey_base64(key, &base64) != SSH_OK || base64 == nullptr) return {};
  std::string text = base64;
  ssh_string_free_char(base64);
  return text;
}

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

io::awaitable<Result<std::string>> ask_agent(io::UnixSocket& socket, std::string request) {
  auto sent = co_await write_frame(socket, std::move(request));
  if (!sent) co_return tl::unexpected(sent.error());
  co_return co_await read_frame(socket);
}

/// Connects and asks once.
io::awaitable<Result<std::string>> ask_agent_at(std::string path, std::string request) {
  io::UnixSocket socket(co_await asio::this_coro::executor);
  if (path.size() > 107) co_return fail(ErrorKind::kInvalid, "{}: too long for a socket", path);
  const asio::local::stream_protocol::endpoint endpoint(path);
  auto [ec] = co_await socket.async_connect(endpoint, io::tok);
  if (ec) co_return tl::unexpected(io::asio_error(ec, "ssh-agent at " + path));
  co_return co_await ask_agent(socket, std::move(request));
}

/// What libssh's agent code, blocking on another thread, talks to: it is told of the chosen keys
/// only, its signing requests go on to the agent, and a silent agent is answered for after a
/// deadline.
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
        auto asked = co_await io::within(deadline, ask_agent_at(agent_path, std::move(*request)),
                                         "ssh-agent");
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

/// One ssh_userauth_agent over `identities`: SSH_AUTH_SUCCESS or not. `problem` tells why not.
io::awaitable<int> agent_authenticate(std::shared_ptr<SshSession> session, AuthPlan plan,
                                      std::vector<AgentIdentity> identities, ThreadPool& threads,
                                      std::string& problem) {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    problem = errno_error(errno, "socketpair").message;
    co_return SSH_AUTH_ERROR;
  }
  if (ssh_set_agent_socket(session->raw(), pair[0]) != SSH_OK) {
    ::close(pair[0]);
    ::close(pair[1]);
    problem = session->last_error();
    co_return SSH_AUTH_ERROR;
  }
  Relay relay{io::UnixSocket(session->executor(), asio::local::stream_protocol(), pair[1]),
              plan.agent_socket,
              std::move(identities),
              plan.agent_deadline,
              {}};
  // The relay lives in this frame: whatever happens, it is joined here.
  const bool throws = co_await asio::this_coro::throw_if_cancelled();
  co_await asio::this_coro::throw_if_cancelled(false);
  io::TaskGroup group(session->executor());
  group.spawn(relay.run());
  int rc = SSH_AUTH_AGAIN;
  while (session->alive()) {
    // No share of the session: its last one must not be given up on the other thread.
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

std::string joined(const std::vector<std::string>& words) {
  return words.empty() ? "nothing" : fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

void FreeKey::operator()(ssh_key_struct* key) const { ssh_key_free(key); }

const KeyStore::Entry& KeyStore::get(const std::string& path) {
  const auto [at, fresh] = entries_.try_emplace(path);
  Entry& entry = at->second;
  if (!fresh) return entry;
  entry.path = path;
  if (::access(path.c_str(), F_OK) != 0) return entry;
  entry.exists = true;
  if (::access(path.c_str(), R_OK) != 0) {
    entry.problem = "cannot be read";
    return entry;
  }
  ssh_key key = nullptr;
  // The callback stands for a passphrase nobody is asked for; it tells an encrypted key from a
  // broken one.
  bool encrypted = false;
  auto ask = [](const char*, char*, std::size_t, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
  };
  const int rc = ssh_pki_import_privkey_file(path.c_str(), nullptr, ask, &encrypted, &key);
  if (rc == SSH_OK && key != nullptr) {
    entry.key.reset(key);
    entry.base64 = exported(key);
    return entry;
  }
  entry.base64 = public_part(path + ".pub");
  entry.problem = encrypted ? "is encrypted and no ssh-agent holds it (ssh-add it first)"
                            : "is not a private key libssh can read";
  return entry;
}

io::awaitable<Result<std::vector<AgentIdentity>>> agent_identities(std::string socket_path,
                                                                   Duration deadline) {
  std::string request(1, kRequestIdentities);
  auto reply = co_await io::within(deadline, ask_agent_at(socket_path, std::move(request)),
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

io::awaitable<Result<void>> authenticate(std::shared_ptr<SshSession> session, AuthPlan plan,
                                         KeyStore& keys, ThreadPool& threads) {
  std::vector<std::string> tried;
  std::vector<std::string> unusable;
  std::vector<std::string> offered;  // public parts, so that the agent does not offer them again
  std::vector<std::string> wanted;   // public parts of the configured identities
  bool partial = false;

  for (const std::string& path : plan.identity_files) {
    const KeyStore::Entry& entry = keys.get(path);
    if (!entry.base64.empty()) wanted.push_back(entry.base64);
    if (!entry.key) continue;
    if (std::find(offered.begin(), offered.end(), entry.base64) != offered.end()) continue;
    ssh_key key = entry.key.get();
    auto offer = [&session, key] { return ssh_userauth_publickey(session->raw(), nullptr, key); };
    const int rc = co_await session->repeat(offer, SSH_AUTH_AGAIN);
    if (rc == SSH_AUTH_SUCCESS) co_return Result<void>();
    partial |= rc == SSH_AUTH_PARTIAL;
    tried.push_back(path);
    offered.push_back(entry.base64);
    if (!session->alive()) break;
  }

  if (session->alive() && !plan.agent_socket.empty()) {
    auto held = co_await agent_identities(plan.agent_socket, plan.agent_deadline);
    if (!held) {
      unusable.push_back(held.error().message);
    } else {
      std::vector<AgentIdentity> chosen;
      std::vector<std::string> names;
      for (const bool preferred : {true, false}) {
        if (!preferred && plan.identities_only) break;
        for (const AgentIdentity& identity : *held) {
          const std::string base64 = to_base64(identity.blob);
          const bool is_wanted = std::find(wanted.begin(), wanted.end(), base64) != wanted.end();
          if (is_wanted != preferred) continue;
          if (std::find(offered.begin(), offered.end(), base64) != offered.end()) continue;
          chosen.push_back(identity);
          offered.push_back(base64);
          names.push_back(fmt::format("agent key '{}'", identity.comment));
        }
      }
      if (!chosen.empty()) {
        std::string problem;
        const int rc =
            co_await agent_authenticate(session, plan, std::move(chosen), threads, problem);
        if (rc == SSH_AUTH_SUCCESS) co_return Result<void>();
        partial |= rc == SSH_AUTH_PARTIAL;
        tried.insert(tried.end(), names.begin(), names.end());
        if (!problem.empty()) unusable.push_back(problem);
      } else if (held->empty()) {
        unusable.push_back("the ssh-agent holds no key");
      }
    }
  }
  for (const std::string& path : plan.identity_files) {
    const KeyStore::Entry& entry = keys.get(path);
    if (!entry.exists && !plan.usual_files) unusable.push_back(path + " does not exist");
    if (!entry.problem.empty() &&
        std::find(offered.begin(), offered.end(), entry.base64) == offered.end())
      unusable.push_back(fmt::format("{} {}", path, entry.problem));
  }
  if (partial)
    co_return fail(ErrorKind::kDenied,
                   "a key was accepted for user {}, but the server wants a further proof (password "
                   "or code), which is not supported",
                   plan.user);
  const std::string also =
      unusable.empty() ? "" : fmt::format("; not usable: {}", fmt::join(unusable, "; "));
  if (!session->alive() && session->why().kind == ErrorKind::kTimeout)
    co_return tl::unexpected(session->why());
  co_return fail(ErrorKind::kDenied,
                 "user {} was refused; tried {}{}{}: is the public key in that user's "
                 "~/.ssh/authorized_keys there?",
                 plan.user, joined(tried), also,
                 session->alive() ? "" : fmt::format(" ({})", session->why().message));
}

}  // namespace dt::launcher
