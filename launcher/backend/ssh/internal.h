/// The ssh backend's inside, for the ssh*.cpp files only: ssh_target.cpp (what options and config
/// say of a host), ssh_host_key.cpp (is it the right server), ssh_connect.cpp (from a name to a
/// session that is logged in), ssh_pool.cpp (sessions shared by channels), ssh_exec.cpp (commands
/// and the bundle).
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "io/asio.h"
#include "io/fd.h"
#include "io/semaphore.h"
#include "io/thread_pool.h"
#include "launcher/backend/bundle.h"
#include "launcher/backend/ssh/auth.h"
#include "launcher/backend/ssh/config.h"
#include "launcher/backend/ssh/known_hosts.h"
#include "launcher/backend/ssh/session.h"
#include "launcher/backend/ssh/ssh.h"
#include "launcher/backend/ssh/stream.h"

namespace dt::launcher {

namespace asio = io::asio;
using asio::awaitable;
using Endpoints = std::vector<asio::ip::tcp::endpoint>;

/// Where and as whom to connect, after the options, the hosts file and the ssh config.
struct Target {
  std::string written;  ///< As the user wrote it; begins every message.
  std::string name;     ///< The same without user and port.
  std::string hostname;
  std::uint16_t port = 22;
  std::string user;
  std::string key_name;        ///< What known_hosts calls it.
  std::uint16_t key_port = 0;  ///< 0 with HostKeyAlias, which stands for name and port.
  io::HostKeyPolicy host_keys = io::HostKeyPolicy::kStrict;
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
  std::size_t most_users = 0;  ///< Less than the limit where sshd refused more.
  bool served = false;         ///< A command ran on it.
  std::optional<Error> error;
  asio::steady_timer changed;

  [[nodiscard]] bool usable() const { return connecting || (session && session->alive()); }
};

/// "HOST: PHASE: what went wrong".
[[nodiscard]] Error phase_error(const Target& target, std::string_view phase, const Error& error);
/// The last `most` bytes of a program's words, on one line.
[[nodiscard]] std::string on_one_line(std::string_view text, std::size_t most = 400);

struct SshBackend::Impl {
  Impl(asio::any_io_executor loop, io::SshOptions opts, std::vector<std::string> files,
       io::Log& sink, SshLimits lim)
      : executor(std::move(loop)),
        options(std::move(opts)),
        bundle_files(std::move(files)),
        log(&sink),
        limits(lim),
        setups(std::make_shared<Semaphore>(executor, lim.in_flight)),
        copies(std::make_shared<Semaphore>(executor, lim.copies)),
        packing(std::make_shared<Semaphore>(executor, 1)) {}

  asio::any_io_executor executor;
  io::SshOptions options;
  std::vector<std::string> bundle_files;
  io::Log* log;
  SshLimits limits;
  KeyStore keys;
  std::map<std::vector<std::string>, KnownHosts> known;
  std::set<std::string> warned;
  std::map<Host, std::vector<std::shared_ptr<Pooled>>> pool;
  std::shared_ptr<Semaphore> setups;
  std::map<std::string, std::shared_ptr<Semaphore>> per_address;
  std::shared_ptr<const Bundle> bundle;
  std::vector<std::string> packed;  ///< The bundle's files as they travel, once a host lacks one.
  std::shared_ptr<Semaphore> copies;
  std::shared_ptr<Semaphore> packing;
  std::set<Host> copying;  ///< To which the bundle is being brought.
  std::minstd_rand random{std::random_device{}()};
  ThreadPool threads{16};

  void warn_once(const std::string& text) {
    if (warned.insert(text).second) log->warn("{}", text);
  }
  [[nodiscard]] std::vector<std::string> config_files() const {
    if (options.config_file == "none") return {};
    if (!options.config_file.empty()) return {expand_home(options.config_file)};
    return {io::home_dir() + "/.ssh/config", "/etc/ssh/ssh_config"};
  }

  // ssh_target.cpp
  Target target_of(const Host& host);
  Result<void> set_options(SshSession& session, const Target& target);
  AuthPlan auth_plan(const Target& target) const;

  // ssh_host_key.cpp
  KnownHosts& known_hosts(const Target& target);
  Result<void> check_host_key(SshSession& session, const Target& target);
  /// The algorithms to ask for: those whose keys we know first, so that a server with several keys
  /// shows one we can check.
  std::string host_key_algorithms(const Target& target);

  // ssh_connect.cpp
  awaitable<Result<Endpoints>> resolve(Target target);
  awaitable<Result<io::Fd>> connect_tcp(Target target, Endpoints endpoints, std::string& address);
  awaitable<Result<std::shared_ptr<SshSession>>> connect(Target target, std::string& address);
  Result<io::Fd> start_proxy(SshSession& session, const Target& target);

  // ssh_pool.cpp
  awaitable<Result<std::shared_ptr<Pooled>>> acquire(Host host, std::shared_ptr<void>& lease);
  awaitable<Result<std::unique_ptr<SshStream>>> exec(Host host, std::string command);

  // ssh_exec.cpp
  awaitable<Result<std::string>> read_first_line(SshStream& stream);
  awaitable<Result<void>> pack();
  /// `missing`: the host's answer, with the hashes of the files to send.
  awaitable<Result<void>> copy_bundle(Host host, std::string missing);
  awaitable<Result<CommandResult>> run(Host host, std::string script, std::string_view input,
                                       Duration deadline);
};

}  // namespace dt::launcher
