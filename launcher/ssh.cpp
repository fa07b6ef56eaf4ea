#include "launcher/ssh.h"

#include <libssh/libssh.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <map>
#include <random>
#include <set>

#include "io/asio.h"
#include "io/task_group.h"
#include "io/within.h"
#include "launcher/bundle.h"
#include "launcher/known_hosts.h"
#include "launcher/offload.h"
#include "launcher/slots.h"
#include "launcher/ssh_auth.h"
#include "launcher/ssh_config.h"
#include "launcher/ssh_session.h"
#include "launcher/subprocess.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;
using asio::ip::tcp;
using io::awaitable;
using namespace std::chrono_literals;

/// curve25519 first: OpenSSH's hybrid post-quantum exchange, which libssh 0.12 prefers, costs 70 ms
/// of CPU a connection. A KexAlgorithms line in the ssh config replaces this list.
constexpr const char* kKeyExchange =
    "curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,ecdh-sha2-nistp384,"
    "ecdh-sha2-nistp521,diffie-hellman-group18-sha512,diffie-hellman-group16-sha512,"
    "diffie-hellman-group-exchange-sha256,diffie-hellman-group14-sha256";
constexpr const char* kHostKeyTypes[] = {"ssh-ed25519", "ecdsa-sha2-nistp256",
                                         "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"};
/// Tries of a connection that sshd drops before its first word.
constexpr int kBannerTries = 8;
/// Output of shell start-up files that may come before our own first line.
constexpr std::size_t kMaxNoise = 64 * 1024;

using Endpoints = std::vector<tcp::endpoint>;

/// Where and as whom to connect, after the options, the hosts file and the ssh config.
struct Target {
  std::string written;  ///< As the user wrote it; begins every message.
  std::string hostname;
  std::uint16_t port = 22;
  std::string user;
  std::string key_name;        ///< What known_hosts calls it.
  std::uint16_t key_port = 0;  ///< 0 with HostKeyAlias, which stands for name and port.
  SshHostConfig config;
};

/// A connection and who uses it.
struct Pooled {
  explicit Pooled(const asio::any_io_executor& executor)
      : changed(executor, asio::steady_timer::time_point::max()) {}
  std::shared_ptr<SshSession> session;
  std::string address;
  bool forward_agent = false;
  bool connecting = true;
  std::size_t users = 0;
  std::optional<Error> error;
  asio::steady_timer changed;

  [[nodiscard]] bool usable() const { return connecting || (session && session->alive()); }
};

/// Keeps a channel's place on a connection.
std::shared_ptr<void> lease_of(const std::shared_ptr<Pooled>& pooled) {
  ++pooled->users;
  return {pooled.get(), [pooled](void*) { --pooled->users; }};
}

Error phase_error(const Target& target, std::string_view phase, const Error& error) {
  return error.at(fmt::format("{}: {}", target.written, phase));
}

std::string first_lines(std::string_view text, std::size_t most = 400) {
  std::string out(text.substr(text.size() > most ? text.size() - most : 0));
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

/// A stream to a program of ours: its failure is an error of the reader, in its own words.
class ProgramStream final : public CommandStream {
 public:
  ProgramStream(std::unique_ptr<SshStream> stream, std::string host, std::string program)
      : stream_(std::move(stream)), host_(std::move(host)), program_(std::move(program)) {}

  awaitable<Result<std::size_t>> read(std::span<char> into) override {
    auto n = co_await stream_->read(into);
    const int code = stream_->exit_code();
    if (!n || *n > 0 || code <= 0) co_return n;
    const std::string words = first_lines(stream_->stderr_tail());
    co_return fail(
        ErrorKind::kUnavailable, "{}: {}", host_,
        words.empty() ? fmt::format("{} ended with exit code {}", program_, code) : words);
  }
  awaitable<Result<void>> write(std::string_view bytes) override { return stream_->write(bytes); }
  void close() override { stream_->close(); }
  void finish_writing() override { stream_->finish_writing(); }

 private:
  std::unique_ptr<SshStream> stream_;
  std::string host_;
  std::string program_;
};

Result<Endpoints> resolve_now(const std::string& name, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    return fail(error == EAI_AGAIN ? ErrorKind::kUnavailable : ErrorKind::kInvalid,
                "{}: {}: is the name right, and does this machine's DNS know it?", name,
                ::gai_strerror(error));
  Endpoints endpoints;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    tcp::endpoint endpoint;
    if (one->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), one->ai_addr, one->ai_addrlen);
    endpoint.resize(one->ai_addrlen);
    endpoints.push_back(endpoint);
  }
  ::freeaddrinfo(found);
  return endpoints;
}

std::string fingerprint(ssh_key key) {
  unsigned char* hash = nullptr;
  std::size_t size = 0;
  if (ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &size) != SSH_OK) return "?";
  char* text = ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size);
  std::string out = text != nullptr ? text : "?";
  ssh_string_free_char(text);
  ssh_clean_pubkey_hash(&hash);
  return out;
}

Result<HostKey> server_key(ssh_session session, std::string& print) {
  ssh_key raw = nullptr;
  if (ssh_get_server_publickey(session, &raw) != SSH_OK)
    return fail(ErrorKind::kProtocol, "the server showed no key");
  const SshKey key(raw);
  print = fingerprint(raw);
  char* base64 = nullptr;
  if (ssh_pki_export_pubkey_base64(raw, &base64) != SSH_OK)
    return fail(ErrorKind::kProtocol, "the server's key cannot be read");
  HostKey host_key;
  host_key.base64 = base64;
  ssh_string_free_char(base64);
  const char* ecdsa = ssh_pki_key_ecdsa_name(raw);
  const bool is_ecdsa = ecdsa != nullptr && std::string_view(ecdsa).starts_with("ecdsa");
  host_key.type = is_ecdsa ? ecdsa : ssh_key_type_to_char(ssh_key_type(raw));
  return host_key;
}

/// The algorithms to ask for: those whose keys we know first, so that a server with several keys
/// shows one we can check.
std::string host_key_algorithms(const std::vector<std::string>& known) {
  std::string list;
  auto add = [&list](std::string_view type) {
    const std::string_view names = type == "ssh-rsa" ? "rsa-sha2-512,rsa-sha2-256" : type;
    if (("," + list + ",").find(fmt::format(",{},", names)) == std::string::npos)
      list += fmt::format("{}{}", list.empty() ? "" : ",", names);
  };
  for (const std::string& type : known)
    if (std::find(std::begin(kHostKeyTypes), std::end(kHostKeyTypes), type) !=
        std::end(kHostKeyTypes))
      add(type);
  for (const char* type : kHostKeyTypes) add(type);
  return list;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Carries bytes between a channel the host opened and our ssh-agent.
awaitable<void> splice(std::unique_ptr<SshStream> channel, std::string agent_socket) {
  io::UnixSocket socket(channel->session().executor());
  const asio::local::stream_protocol::endpoint endpoint(agent_socket);
  auto [ec] = co_await socket.async_connect(endpoint, io::tok);
  if (ec) co_return;
  auto agent = io::unix_stream(std::move(socket));
  auto carry = [](io::ByteStream& from, io::ByteStream& to) -> awaitable<void> {
    std::string buffer(16 * 1024, '\0');
    for (;;) {
      auto n = co_await from.read(buffer);
      if (!n || *n == 0) break;
      const std::string_view bytes(buffer.data(), *n);
      auto sent = co_await to.write(bytes);
      if (!sent) break;
    }
    from.close();
    to.close();
  };
  using namespace asio::experimental::awaitable_operators;
  auto both = carry(*channel, *agent) && carry(*agent, *channel);
  co_await std::move(both);
}

}  // namespace

struct SshBackend::Impl : std::enable_shared_from_this<SshBackend::Impl> {
  Impl(asio::any_io_executor loop, io::SshOptions opts, std::vector<std::string> files,
       io::Log& sink, SshLimits lim)
      : executor(std::move(loop)),
        options(std::move(opts)),
        bundle_files(std::move(files)),
        log(&sink),
        limits(lim),
        setups(std::make_shared<Slots>(executor, lim.in_flight)) {}

  asio::any_io_executor executor;
  io::SshOptions options;
  std::vector<std::string> bundle_files;
  io::Log* log;
  SshLimits limits;
  KeyStore keys;
  std::map<std::vector<std::string>, KnownHosts> known;
  std::set<std::string> warned;
  std::map<Host, std::vector<std::shared_ptr<Pooled>>> pool;
  std::shared_ptr<Slots> setups;
  std::map<std::string, std::shared_ptr<Slots>> per_address;
  std::shared_ptr<const Bundle> bundle;
  std::minstd_rand random{std::random_device{}()};
  Offload offload{16};

  void warn_once(const std::string& text) {
    if (warned.insert(text).second) log->warn("{}", text);
  }
  [[nodiscard]] std::vector<std::string> config_files() const {
    if (options.config_file == "none") return {};
    if (!options.config_file.empty()) return {expand_home(options.config_file)};
    return {home_dir() + "/.ssh/config", "/etc/ssh/ssh_config"};
  }
  Target target_of(const Host& host);
  KnownHosts& known_hosts(const Target& target);
  Result<void> set_options(SshSession& session, const Target& target);
  Result<void> check_host_key(SshSession& session, const Target& target);
  AuthPlan auth_plan(const Target& target) const;
  Result<io::Fd> start_proxy(SshSession& session, const Target& target);

  awaitable<Result<Endpoints>> resolve(Target target);
  awaitable<Result<io::Fd>> connect_tcp(Target target, Endpoints endpoints, std::string& address);
  awaitable<Result<std::shared_ptr<SshSession>>> connect(Target target, std::string& address);
  awaitable<Result<std::shared_ptr<Pooled>>> acquire(Host host, std::shared_ptr<void>& lease);
  awaitable<Result<std::unique_ptr<SshStream>>> exec(Host host, std::string command);
  awaitable<Result<std::string>> read_first_line(SshStream& stream);
  awaitable<Result<void>> copy_bundle(Host host);
  awaitable<Result<CommandResult>> run(Host host, std::string script, std::string_view input,
                                       Duration deadline);
};

Target SshBackend::Impl::target_of(const Host& host) {
  const SshConfig config(config_files());
  Target target;
  target.written = to_string(host);
  const std::string& given_user = host.user.empty() ? options.user : host.user;
  target.config = config.lookup(host.name, given_user);
  for (const std::string& note : config.ignored(host.name))
    // Debian's own ssh_config sends the locale; nobody misses it.
    if (note.rfind("/etc/ssh/", 0) != 0) warn_once(note);
  target.hostname = target.config.hostname;
  target.user = !given_user.empty()           ? given_user
                : !target.config.user.empty() ? target.config.user
                                              : own_user_name();
  target.port = host.port != 0            ? host.port
                : options.port != 0       ? options.port
                : target.config.port != 0 ? target.config.port
                                          : std::uint16_t{22};
  const bool alias = !target.config.host_key_alias.empty();
  target.key_name = alias ? target.config.host_key_alias : target.hostname;
  target.key_port = alias ? std::uint16_t{0} : target.port;
  return target;
}

KnownHosts& SshBackend::Impl::known_hosts(const Target& target) {
  std::vector<std::string> files = target.config.user_known_hosts;
  if (files.empty()) files = {home_dir() + "/.ssh/known_hosts", home_dir() + "/.ssh/known_hosts2"};
  if (target.config.global_known_hosts.empty()) {
    files.emplace_back("/etc/ssh/ssh_known_hosts");
  } else {
    const auto& global = target.config.global_known_hosts;
    files.insert(files.end(), global.begin(), global.end());
  }
  const auto at = known.try_emplace(files, files).first;
  return at->second;
}

Result<void> SshBackend::Impl::set_options(SshSession& session, const Target& target) {
  ssh_session raw = session.raw();
  int silent = SSH_LOG_NOLOG;
  ssh_options_set(raw, SSH_OPTIONS_HOST, target.config.hostname.c_str());
  ssh_options_set(raw, SSH_OPTIONS_KEY_EXCHANGE, kKeyExchange);
  std::vector<std::string> types;
  if (options.known_hosts != io::HostKeyPolicy::kOff)
    types = known_hosts(target).key_types(target.key_name, target.key_port);
  ssh_options_set(raw, SSH_OPTIONS_HOSTKEYS, host_key_algorithms(types).c_str());
  for (const std::string& file : config_files())
    if (ssh_options_parse_config(raw, file.c_str()) < 0)
      return fail(ErrorKind::kInvalid, "ssh config {}: {}", file, session.last_error());
  bool no = false;
  ssh_options_set(raw, SSH_OPTIONS_PROCESS_CONFIG, &no);
  ssh_options_set(raw, SSH_OPTIONS_LOG_VERBOSITY, &silent);
  // libssh would read these files anew for every session.
  ssh_options_set(raw, SSH_OPTIONS_KNOWNHOSTS, "/dev/null");
  ssh_options_set(raw, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null");
  if (ssh_options_set(raw, SSH_OPTIONS_USER, target.user.c_str()) != SSH_OK)
    return fail(ErrorKind::kInvalid, "user {}: {}", target.user, session.last_error());
  return {};
}

Result<void> SshBackend::Impl::check_host_key(SshSession& session, const Target& target) {
  if (options.known_hosts == io::HostKeyPolicy::kOff) return {};
  std::string print;
  const auto key = server_key(session.raw(), print);
  if (!key) return tl::unexpected(key.error());
  KnownHosts& index = known_hosts(target);
  const std::string name = known_hosts_name(target.key_name, target.key_port);
  const KnownHosts::Finding found = index.check(target.key_name, target.key_port, *key);
  for (const std::string& note : index.take_notes()) warn_once(note);
  const std::string file = found.place.substr(0, found.place.rfind(':'));
  switch (found.verdict) {
    case KnownHosts::Verdict::kMatch:
      return {};
    case KnownHosts::Verdict::kRevoked:
      return fail(ErrorKind::kDenied,
                  "the server's {} key {} is revoked ({}): nothing was started there", key->type,
                  print, found.place);
    case KnownHosts::Verdict::kChanged:
      return fail(ErrorKind::kDenied,
                  "the server's {} key {} is not the one in {}: nothing was started there. If the "
                  "machine was set up anew: ssh-keygen -f {} -R '{}'; if not, someone may be in "
                  "between",
                  key->type, print, found.place, file, name);
    case KnownHosts::Verdict::kOtherType:
      return fail(ErrorKind::kDenied,
                  "the server shows only a {} key {}, but {} knows it by another type of key: "
                  "nothing was started there. If the machine was set up anew: ssh-keygen -f {} -R "
                  "'{}'",
                  key->type, print, found.place, file, name);
    case KnownHosts::Verdict::kUnknown:
      break;
  }
  if (options.known_hosts == io::HostKeyPolicy::kStrict)
    return fail(ErrorKind::kDenied,
                "the server's {} key {} is not in {}: add it (ssh-keyscan, after comparing it), or "
                "allow new hosts with --ssh-known-hosts accept-new",
                key->type, print, index.first_file());
  if (const auto added = index.add(target.key_name, target.key_port, *key); !added)
    warn_once(fmt::format("{}: the new host key is not remembered: {}", target.written,
                          added.error().message));
  return {};
}

AuthPlan SshBackend::Impl::auth_plan(const Target& target) const {
  AuthPlan plan;
  plan.user = target.user;
  plan.agent_deadline = std::min<Duration>(limits.handshake * 3 / 4, 15s);
  for (const std::string& file : options.identities)
    plan.identity_files.push_back(expand_home(file));
  const auto& configured = target.config.identity_files;
  plan.identity_files.insert(plan.identity_files.end(), configured.begin(), configured.end());
  if (plan.identity_files.empty())
    for (const char* name : {"id_ed25519", "id_ecdsa", "id_rsa"})
      plan.identity_files.push_back(fmt::format("{}/.ssh/{}", home_dir(), name));
  plan.identities_only = target.config.identities_only;
  if (target.config.identity_agent.empty()) {
    const char* socket = std::getenv("SSH_AUTH_SOCK");
    if (socket != nullptr) plan.agent_socket = socket;
  } else if (target.config.identity_agent != "none") {
    plan.agent_socket = target.config.identity_agent;
  }
  return plan;
}

Result<io::Fd> SshBackend::Impl::start_proxy(SshSession& session, const Target& target) {
  std::string command = target.config.proxy_command;
  if (command.empty()) {
    // The last hop forwards to the host, and is itself reached by way of the others.
    const std::string& jump = target.config.proxy_jump;
    const std::size_t comma = jump.rfind(',');
    const std::string last = jump.substr(comma == std::string::npos ? 0 : comma + 1);
    command = "ssh -o BatchMode=yes";
    if (!options.config_file.empty())
      command += " -F " + shell_word(expand_home(options.config_file));
    for (const std::string& file : options.identities)
      command += " -i " + shell_word(expand_home(file));
    if (comma != std::string::npos) command += " -J " + shell_word(jump.substr(0, comma));
    std::string hop = last.rfind("ssh://", 0) == 0 ? last.substr(6) : last;
    const std::size_t colon = hop.rfind(':');
    const bool has_port = colon != std::string::npos && hop.find(']', colon) == std::string::npos &&
                          (hop.find(':') == colon || hop[colon - 1] == ']');
    if (has_port) command += " -p " + shell_word(hop.substr(colon + 1));
    command += fmt::format(" -W '[%h]:%p' -- {}",
                           shell_word(hop.substr(0, has_port ? colon : hop.size())));
  }
  std::string expanded;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char next = command[i] == '%' && i + 1 < command.size() ? command[i + 1] : '\0';
    if (next == 'h')
      expanded += target.hostname;
    else if (next == 'p')
      expanded += std::to_string(target.port);
    else if (next == 'r')
      expanded += target.user;
    else if (next == 'n')
      expanded += target.hostname;
    else if (next == '%')
      expanded += '%';
    else {
      expanded += command[i];
      continue;
    }
    ++i;
  }
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return tl::unexpected(errno_error(errno, "socketpair"));
  io::Fd ours(pair[0]);
  const io::Fd theirs(pair[1]);
  auto child = Subprocess::start({"/bin/sh", "-c", "exec " + expanded}, theirs.get(), theirs.get(),
                                 STDERR_FILENO);
  if (!child) return tl::unexpected(child.error());
  session.keep(std::make_shared<Subprocess>(std::move(*child)));
  return ours;
}

awaitable<Result<Endpoints>> SshBackend::Impl::resolve(Target target) {
  boost::system::error_code ec;
  const auto literal = asio::ip::make_address(target.hostname, ec);
  if (!ec) {
    const tcp::endpoint endpoint(literal, target.port);
    co_return Endpoints(1, endpoint);
  }
  std::function<Result<Endpoints>()> work = [name = target.hostname, port = target.port] {
    return resolve_now(name, port);
  };
  const auto limit = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(options.connect_timeout_s));
  auto found = co_await offload.finish_within(limit, std::move(work), target.hostname);
  if (!found) co_return tl::unexpected(phase_error(target, "resolve", found.error()));
  co_return std::move(*found);
}

awaitable<Result<io::Fd>> SshBackend::Impl::connect_tcp(Target target, Endpoints endpoints,
                                                        std::string& address) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(options.connect_timeout_s));
  std::string problems;
  ErrorKind kind = ErrorKind::kUnavailable;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    const auto left = (end - Clock::now()) / static_cast<std::int64_t>(endpoints.size() - i);
    tcp::socket socket(executor);
    auto try_one = [](tcp::socket& s, tcp::endpoint to) -> awaitable<Result<int>> {
      auto [ec] = co_await s.async_connect(to, io::tok);
      if (ec) co_return fail(ErrorKind::kUnavailable, "{}", ec.message());
      co_return 0;
    };
    auto connected = co_await io::within(left, try_one(socket, endpoints[i]), "no answer");
    address = endpoints[i].address().to_string();
    if (connected) {
      const int one = 1;
      const auto silence = static_cast<unsigned>(
          std::chrono::duration_cast<std::chrono::milliseconds>(limits.alive_interval).count() *
          (limits.alive_count_max + 1));
      ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof silence);
      boost::system::error_code ec;
      io::Fd fd(socket.release(ec));
      ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
      co_return std::move(fd);
    }
    kind = connected.error().kind;
    problems += fmt::format("{}{} port {}: {}", problems.empty() ? "" : "; ", address, target.port,
                            connected.error().message);
  }
  co_return fail(kind, "{}: connect to {}: is sshd running there, and is the port right?",
                 target.written, problems);
}

awaitable<Result<std::shared_ptr<SshSession>>> SshBackend::Impl::connect(Target target,
                                                                         std::string& address) {
  const bool proxied = !target.config.proxy_command.empty() || !target.config.proxy_jump.empty();
  Endpoints endpoints;
  if (!proxied) {
    auto found = co_await resolve(target);
    if (!found) co_return tl::unexpected(found.error());
    endpoints = std::move(*found);
  }
  const std::string place = proxied ? target.hostname : endpoints.front().address().to_string();
  auto& slots = per_address[fmt::format("{}:{}", place, target.port)];
  if (!slots) slots = std::make_shared<Slots>(executor, limits.per_address);
  const auto turns = slots;  // the map may grow meanwhile

  for (int attempt = 1;; ++attempt) {
    Slots::Held here = co_await turns->acquire();
    Slots::Held overall = co_await setups->acquire();
    auto made = SshSession::make(executor, target.written);
    if (!made) co_return tl::unexpected(phase_error(target, "connect", made.error()));
    const std::shared_ptr<SshSession> session = std::move(*made);
    io::Fd fd;
    if (proxied) {
      address = target.hostname;
      auto started = start_proxy(*session, target);
      if (!started) co_return tl::unexpected(phase_error(target, "ProxyCommand", started.error()));
      fd = std::move(*started);
    } else {
      auto connected = co_await connect_tcp(target, endpoints, address);
      if (!connected) co_return tl::unexpected(connected.error());
      fd = std::move(*connected);
    }
    if (auto set = set_options(*session, target); !set)
      co_return tl::unexpected(phase_error(target, "options", set.error()));

    Error late{
        ErrorKind::kTimeout,
        fmt::format("nothing more from {} port {} for {:.1f} s: does something other than "
                    "sshd listen there, or is the machine overloaded?",
                    address, target.port, std::chrono::duration<double>(limits.handshake).count())};
    const Watchdog watchdog(session, limits.handshake, std::move(late));
    auto shaken = co_await session->handshake(std::move(fd));
    if (!shaken) {
      if (session->before_banner() && attempt < kBannerTries) {
        // sshd's MaxStartups drops some of those who come together: come again, apart.
        here.release();
        overall.release();
        const auto most = std::min(50 << attempt, 2000);
        const auto pause =
            std::chrono::milliseconds(std::uniform_int_distribution<int>(20, most)(random));
        co_await io::sleep_for(pause);
        continue;
      }
      const bool dropped = session->before_banner();
      co_return fail(
          shaken.error().kind, "{}: handshake: {}{}", target.written, shaken.error().message,
          dropped ? " (before sshd's first word: MaxStartups of sshd, or a firewall?)" : "");
    }
    if (auto checked = check_host_key(*session, target); !checked) {
      session->close(checked.error());
      co_return tl::unexpected(phase_error(target, "host key", checked.error()));
    }
    auto proven = co_await authenticate(session, auth_plan(target), keys, offload);
    if (!proven) {
      session->close(proven.error());
      co_return tl::unexpected(phase_error(target, "authentication", proven.error()));
    }
    const SshHostConfig& config = target.config;
    session->keep_alive(
        config.alive_interval > Duration::zero() ? config.alive_interval : limits.alive_interval,
        config.alive_count_max > 0 ? config.alive_count_max : limits.alive_count_max);
    co_return session;
  }
}

awaitable<Result<std::shared_ptr<Pooled>>> SshBackend::Impl::acquire(Host host,
                                                                     std::shared_ptr<void>& lease) {
  auto& all = pool[host];
  std::shared_ptr<Pooled> chosen;
  std::erase_if(all, [](const auto& one) { return !one->usable(); });
  for (const auto& one : all)
    if (!chosen && one->users < limits.channels_per_session) chosen = one;
  if (chosen) {
    lease = lease_of(chosen);
    while (chosen->connecting) co_await chosen->changed.async_wait(io::tok);
    if (chosen->error) co_return tl::unexpected(*chosen->error);
    co_return chosen;
  }
  chosen = std::make_shared<Pooled>(executor);
  all.push_back(chosen);
  lease = lease_of(chosen);
  // Also when this coroutine is stopped half-way, those who wait for it learn so.
  struct Announce {
    std::shared_ptr<Pooled> pooled;
    ~Announce() {
      pooled->connecting = false;
      if (!pooled->session && !pooled->error)
        pooled->error = Error{ErrorKind::kClosed, "the connection was given up"};
      pooled->changed.cancel();
    }
  };
  const Announce announce{chosen};
  const Target target = target_of(host);
  chosen->forward_agent = options.forward_agent || target.config.forward_agent;
  auto connected = co_await connect(target, chosen->address);
  if (!connected) {
    chosen->error = connected.error();
    co_return tl::unexpected(connected.error());
  }
  chosen->session = std::move(*connected);
  const char* agent = std::getenv("SSH_AUTH_SOCK");
  if (chosen->forward_agent && agent == nullptr) {
    warn_once("the ssh-agent cannot be forwarded: SSH_AUTH_SOCK is not set");
    chosen->forward_agent = false;
  }
  if (chosen->forward_agent) {
    auto accept = [session = std::weak_ptr(chosen->session),
                   socket = std::string(agent)](ssh_channel channel) {
      const auto live = session.lock();
      if (!live) return;
      // Ends with the channel, at the latest with the session.
      auto carried = splice(std::make_unique<SshStream>(live, channel, nullptr), socket);
      asio::co_spawn(live->executor(), std::move(carried), [](std::exception_ptr) {});
    };
    chosen->session->on_agent_channel(std::move(accept));
  }
  co_return chosen;
}

awaitable<Result<std::unique_ptr<SshStream>>> SshBackend::Impl::exec(Host host,
                                                                     std::string command) {
  // A session may die between two uses: then a new one, once.
  for (int attempt = 0;; ++attempt) {
    std::shared_ptr<void> lease;
    auto pooled = co_await acquire(host, lease);
    if (!pooled) co_return tl::unexpected(pooled.error());
    const auto session = (*pooled)->session;
    auto stream = co_await SshStream::exec(session, command, (*pooled)->forward_agent, limits.exec,
                                           std::move(lease));
    if (stream) co_return std::move(*stream);
    if (session->alive() || attempt > 0)
      co_return tl::unexpected(stream.error().at(fmt::format("{}: exec", host)));
  }
}

awaitable<Result<std::string>> SshBackend::Impl::read_first_line(SshStream& stream) {
  std::string seen;
  std::array<char, 4096> piece{};
  for (;;) {
    for (const std::string_view line : {kReadyLine, kMissingLine}) {
      const std::size_t at = seen.find(fmt::format("{}\n", line));
      if (at == std::string::npos || (at > 0 && seen[at - 1] != '\n')) continue;
      stream.unread(seen.substr(at + line.size() + 1));
      co_return std::string(line);
    }
    if (seen.size() > kMaxNoise)
      co_return fail(ErrorKind::kProtocol,
                     "the login shell prints without end before any command: look at its start-up "
                     "files");
    auto n = co_await stream.read(piece);
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) {
      if (!stream.session().alive()) co_return tl::unexpected(stream.session().why());
      co_return fail(ErrorKind::kUnavailable, "the login shell ended with exit code {}: {}",
                     stream.exit_code(),
                     first_lines(stream.stderr_tail().empty() ? seen : stream.stderr_tail()));
    }
    seen.append(piece.data(), *n);
  }
}

awaitable<Result<CommandResult>> SshBackend::Impl::run(Host host, std::string script,
                                                       std::string_view input, Duration deadline) {
  const std::string command = login_command(script);
  auto stream = co_await exec(host, command);
  if (!stream) co_return tl::unexpected(stream.error());
  SshStream& channel = **stream;
  auto talk = [](SshStream& s, std::string_view in) -> awaitable<Result<CommandResult>> {
    auto sent = co_await s.write(in);  // a command that does not read its input is no error
    s.finish_writing();
    CommandResult result;
    std::string piece(64 * 1024, '\0');
    for (;;) {
      auto n = co_await s.read(piece);
      if (!n) co_return tl::unexpected(n.error());
      if (*n == 0) break;
      result.out.append(piece, 0, *n);
    }
    result.exit_code = s.exit_code();
    result.err = s.stderr_tail();
    if (result.exit_code < 0) co_return tl::unexpected(s.session().why());
    co_return std::move(result);
  };
  auto result = co_await io::within(deadline, talk(channel, input), "the command");
  if (!result) co_return tl::unexpected(result.error().at(to_string(host)));
  co_return std::move(*result);
}

awaitable<Result<void>> SshBackend::Impl::copy_bundle(Host host) {
  const std::string token = fmt::format("{:08x}{:08x}", std::random_device{}(), random());
  const auto end = std::chrono::steady_clock::now() + limits.copy;
  auto step = [](Impl& self, Host to, std::string script, std::string_view input,
                 std::chrono::steady_clock::time_point until) -> awaitable<Result<void>> {
    const Duration left = until - std::chrono::steady_clock::now();
    auto done = co_await self.run(to, script, input, left);
    if (!done) co_return tl::unexpected(done.error());
    if (done->exit_code != 0)
      co_return fail(ErrorKind::kIo,
                     "{}: bundle copy: exit code {}: {}: is there room in "
                     "~/.cache, and may programs run from there?",
                     to, done->exit_code, first_lines(done->err));
    co_return Result<void>();
  };
  log->info("{}: copying the agent ({} files)", host, bundle->files.size());
  for (const BundleFile& file : bundle->files) {
    const std::string script = bundle_store_script(*bundle, file, token);
    auto stored = co_await step(*this, host, script, file.bytes, end);
    if (!stored) co_return tl::unexpected(stored.error());
  }
  const std::string commit = bundle_commit_script(*bundle, token);
  const std::string_view nothing;
  co_return co_await step(*this, host, commit, nothing, end);
}

SshBackend::SshBackend(asio::any_io_executor executor, io::SshOptions options,
                       std::vector<std::string> bundle, io::Log& log, SshLimits limits)
    : impl_(std::make_shared<Impl>(std::move(executor), std::move(options), std::move(bundle), log,
                                   limits)) {
  raise_descriptor_limit();
}

SshBackend::~SshBackend() {
  // Connections in use live on with their streams; the idle ones end here.
  for (const auto& [host, all] : impl_->pool)
    for (const auto& one : all)
      if (one->session && one->users == 0)
        one->session->close({ErrorKind::kClosed, "the launcher is going away"});
}

awaitable<Result<std::unique_ptr<io::ByteStream>>> SshBackend::open(Host host,
                                                                    AgentCommand command) {
  const auto self = impl_;
  if (!self->bundle) {
    auto loaded = load_bundle(self->bundle_files);
    if (!loaded) co_return tl::unexpected(loaded.error());
    self->bundle = std::move(*loaded);
  }
  const std::string start = login_command(bundle_exec_script(*self->bundle, command.argv));
  for (int attempt = 0;; ++attempt) {
    auto stream = co_await self->exec(host, start);
    if (!stream) co_return tl::unexpected(stream.error());
    auto line = co_await io::within(self->limits.exec, self->read_first_line(**stream),
                                    "no sign of the agent's start");
    if (!line) co_return tl::unexpected(line.error().at(fmt::format("{}: exec", host)));
    if (*line == kReadyLine) {
      std::unique_ptr<io::ByteStream> program = std::make_unique<ProgramStream>(
          std::move(*stream), to_string(host), command.argv.front());
      co_return std::move(program);
    }
    if (attempt > 0)
      co_return fail(ErrorKind::kIo, "{}: bundle copy: the copied files are not there afterwards",
                     host);
    stream->reset();
    auto copied = co_await self->copy_bundle(host);
    if (!copied) co_return tl::unexpected(copied.error());
  }
}

awaitable<Result<std::string>> SshBackend::address(Host host) {
  const auto self = impl_;
  if (const auto at = self->pool.find(host); at != self->pool.end())
    for (const auto& one : at->second)
      if (one->session && one->session->alive()) co_return one->address;
  const Target target = self->target_of(host);
  auto found = co_await self->resolve(target);
  if (!found) co_return tl::unexpected(found.error());
  co_return found->front().address().to_string();
}

awaitable<Result<CommandResult>> SshBackend::run(Host host, std::string shell_command,
                                                 std::string input, Duration deadline) {
  const auto self = impl_;
  co_return co_await self->run(host, shell_command, input, deadline);
}

awaitable<Result<std::unique_ptr<CommandStream>>> SshBackend::start(Host host,
                                                                    std::string shell_command) {
  const auto self = impl_;
  const std::string command = login_command(shell_command);
  auto stream = co_await self->exec(host, command);
  if (!stream) co_return tl::unexpected(stream.error());
  std::unique_ptr<CommandStream> program =
      std::make_unique<ProgramStream>(std::move(*stream), to_string(host), "the command");
  co_return std::move(program);
}

void SshBackend::disconnect(const Host& host) {
  const auto at = impl_->pool.find(host);
  if (at == impl_->pool.end()) return;
  for (const auto& one : at->second)
    if (one->session)
      one->session->close({ErrorKind::kUnavailable, fmt::format("{}: disconnected", host)});
}

std::size_t SshBackend::connections() const {
  std::size_t count = 0;
  for (const auto& [host, all] : impl_->pool)
    for (const auto& one : all) count += one->session && one->session->alive() ? 1U : 0U;
  return count;
}

std::vector<std::string> SshBackend::ssh_command(const Host& host) const {
  const io::SshOptions& options = impl_->options;
  std::vector<std::string> words = {"ssh", "-o", "BatchMode=yes"};
  auto option = [&words](std::string text) {
    words.emplace_back("-o");
    words.push_back(std::move(text));
  };
  option("ServerAliveInterval=5");
  option(fmt::format("ConnectTimeout={:.0f}", std::max(1.0, options.connect_timeout_s)));
  switch (options.known_hosts) {
    case io::HostKeyPolicy::kStrict:
      option("StrictHostKeyChecking=yes");
      break;
    case io::HostKeyPolicy::kAcceptNew:
      option("StrictHostKeyChecking=accept-new");
      break;
    case io::HostKeyPolicy::kOff:
      option("StrictHostKeyChecking=no");
      option("UserKnownHostsFile=/dev/null");
      option("LogLevel=ERROR");
      break;
  }
  if (!options.config_file.empty()) {
    words.emplace_back("-F");
    words.push_back(options.config_file == "none" ? "none" : expand_home(options.config_file));
  }
  for (const std::string& file : options.identities) {
    words.emplace_back("-i");
    words.push_back(expand_home(file));
  }
  const std::uint16_t port = host.port != 0 ? host.port : options.port;
  if (port != 0) {
    words.emplace_back("-p");
    words.push_back(std::to_string(port));
  }
  const std::string& user = host.user.empty() ? options.user : host.user;
  if (!user.empty()) {
    words.emplace_back("-l");
    words.push_back(user);
  }
  return words;
}

}  // namespace dt::launcher
