#include "launcher/backend/ssh/target.h"

#include <libssh/libssh.h>

#include <algorithm>
#include <cstdlib>

#include "launcher/backend/ssh/session.h"
#include "launcher/shell_word.h"

namespace dt::launcher {
namespace {

/// curve25519 first: OpenSSH's hybrid post-quantum exchange, which libssh 0.12 prefers, costs 70 ms
/// of CPU a connection. A KexAlgorithms line in the ssh config replaces this list.
constexpr const char* kKeyExchange =
    "curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,ecdh-sha2-nistp384,"
    "ecdh-sha2-nistp521,diffie-hellman-group18-sha512,diffie-hellman-group16-sha512,"
    "diffie-hellman-group-exchange-sha256,diffie-hellman-group14-sha256";

}  // namespace

Error phase_error(const Target& target, std::string_view phase, const Error& error) {
  return error.at(fmt::format("{}: {}", target.written, phase));
}

std::vector<std::string> Targets::config_files() const {
  if (options_.config_file == "none") return {};
  if (!options_.config_file.empty()) return {expand_home(options_.config_file)};
  return {io::home_dir() + "/.ssh/config", "/etc/ssh/ssh_config"};
}

Target Targets::find(const Host& host) const {
  Target target;
  target.written = to_string(host);
  target.name = host.name;
  const std::string& given_user = host.user.empty() ? options_.user : host.user;
  target.config = read_ssh_config(config_files(), host.name, given_user);
  for (const std::string& note : target.config.ignored)
    // Not of Debian's own ssh_config, which sends the locale.
    if (note.rfind("/etc/ssh/", 0) != 0) log_->warn(note);
  target.hostname = target.config.hostname;
  target.user = !given_user.empty()           ? given_user
                : !target.config.user.empty() ? target.config.user
                                              : own_user_name();
  target.port = host.port != 0            ? host.port
                : options_.port != 0      ? options_.port
                : target.config.port != 0 ? target.config.port
                                          : std::uint16_t{22};
  const bool alias = !target.config.host_key_alias.empty();
  target.key_name = alias ? target.config.host_key_alias : target.hostname;
  target.key_port = alias ? std::uint16_t{0} : target.port;
  target.host_keys = options_.known_hosts != io::HostKeyPolicy::kFromConfig
                         ? options_.known_hosts
                         : target.config.host_keys.value_or(io::HostKeyPolicy::kAcceptNew);
  return target;
}

Result<void> Targets::configure(SshSession& session, const Target& target,
                                const std::string& host_key_types) const {
  ssh_session raw = session.raw();
  int silent = SSH_LOG_NOLOG;
  ssh_options_set(raw, SSH_OPTIONS_HOST, target.config.hostname.c_str());
  ssh_options_set(raw, SSH_OPTIONS_KEY_EXCHANGE, kKeyExchange);
  ssh_options_set(raw, SSH_OPTIONS_HOSTKEYS, host_key_types.c_str());
  for (const std::string& file : config_files())
    if (ssh_options_parse_config(raw, file.c_str()) < 0)
      return fail(ErrorKind::kInvalid, "ssh config {}: {}", file, session.last_error());
  bool no = false;
  ssh_options_set(raw, SSH_OPTIONS_PROCESS_CONFIG, &no);
  ssh_options_set(raw, SSH_OPTIONS_LOG_VERBOSITY, &silent);
  // libssh would read these files again for every session.
  ssh_options_set(raw, SSH_OPTIONS_KNOWNHOSTS, "/dev/null");
  ssh_options_set(raw, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null");
  if (ssh_options_set(raw, SSH_OPTIONS_USER, target.user.c_str()) != SSH_OK)
    return fail(ErrorKind::kInvalid, "user {}: {}", target.user, session.last_error());
  return {};
}

AuthPlan Targets::auth_plan(const Target& target, Duration agent_deadline) const {
  AuthPlan plan;
  plan.user = target.user;
  plan.agent_deadline = agent_deadline;
  for (const std::string& file : options_.identities)
    plan.identity_files.push_back(expand_home(file));
  const auto& configured = target.config.identity_files;
  plan.identity_files.insert(plan.identity_files.end(), configured.begin(), configured.end());
  plan.usual_files = plan.identity_files.empty();
  if (plan.usual_files)
    for (const char* name : {"id_ed25519", "id_ecdsa", "id_rsa"})
      plan.identity_files.push_back(fmt::format("{}/.ssh/{}", io::home_dir(), name));
  plan.identities_only = target.config.identities_only;
  if (target.config.identity_agent.empty()) {
    const char* socket = std::getenv("SSH_AUTH_SOCK");
    if (socket != nullptr) plan.agent_socket = socket;
  } else if (target.config.identity_agent != "none") {
    plan.agent_socket = target.config.identity_agent;
  }
  return plan;
}

std::string Targets::ssh_command(const Host& host) const {
  std::string line =
      fmt::format("ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ConnectTimeout={:.0f}",
                  std::max(1.0, seconds(options_.connect_timeout)));
  switch (find(host).host_keys) {
    case io::HostKeyPolicy::kFromConfig:
    case io::HostKeyPolicy::kStrict:
      line += " -o StrictHostKeyChecking=yes";
      break;
    case io::HostKeyPolicy::kAcceptNew:
      line += " -o StrictHostKeyChecking=accept-new";
      break;
    case io::HostKeyPolicy::kOff:
      line += " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR";
      break;
  }
  line += file_words(options_);
  const std::uint16_t port = host.port != 0 ? host.port : options_.port;
  if (port != 0) line += fmt::format(" -p {}", port);
  const std::string& user = host.user.empty() ? options_.user : host.user;
  if (!user.empty()) line += " -l " + shell_word(user);
  return line;
}

std::string file_words(const io::SshOptions& options) {
  std::string words;
  if (!options.config_file.empty()) words += " -F " + shell_word(expand_home(options.config_file));
  for (const std::string& file : options.identities)
    words += " -i " + shell_word(expand_home(file));
  return words;
}

}  // namespace dt::launcher
