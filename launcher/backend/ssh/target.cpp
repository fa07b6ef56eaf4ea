#include "launcher/backend/ssh/target.h"

#include <libssh/libssh.h>

#include <algorithm>
#include <limits>

#include "io/subprocess.h"
#include "launcher/backend/ssh/session.h"
#include "launcher/shell_word.h"

namespace dt::launcher {
namespace {

/// curve25519 first: OpenSSH's hybrid post-quantum exchange, which libssh 0.12 prefers, costs 70 ms
/// of CPU a connection.
constexpr const char* kKeyExchange =
    "curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,ecdh-sha2-nistp384,"
    "ecdh-sha2-nistp521,diffie-hellman-group18-sha512,diffie-hellman-group16-sha512,"
    "diffie-hellman-group-exchange-sha256,diffie-hellman-group14-sha256";
/// libssh's own, which +, - and ^ in the ssh config change.
constexpr const char* kCiphers =
    "chacha20-poly1305@openssh.com,aes256-gcm@openssh.com,aes128-gcm@openssh.com,aes256-ctr,"
    "aes192-ctr,aes128-ctr";
constexpr const char* kMacs =
    "hmac-sha2-256-etm@openssh.com,hmac-sha2-512-etm@openssh.com,hmac-sha2-256,hmac-sha2-512";
constexpr const char* kUserKeyTypes =
    "ssh-ed25519-cert-v01@openssh.com,ecdsa-sha2-nistp521-cert-v01@openssh.com,"
    "ecdsa-sha2-nistp384-cert-v01@openssh.com,ecdsa-sha2-nistp256-cert-v01@openssh.com,"
    "rsa-sha2-512-cert-v01@openssh.com,rsa-sha2-256-cert-v01@openssh.com,"
    "ssh-ed25519,ecdsa-sha2-nistp521,ecdsa-sha2-nistp384,ecdsa-sha2-nistp256,"
    "sk-ssh-ed25519@openssh.com,sk-ecdsa-sha2-nistp256@openssh.com,rsa-sha2-512,rsa-sha2-256";

/// A keyword of the ssh config that names algorithms, and libssh's options for it.
struct Algorithms {
  const char* keyword;
  std::string configured;
  std::string usual;
  std::vector<ssh_options_e> options;
};

Result<void> set_algorithms(SshSession& session, const Algorithms& what) {
  if (what.configured.empty()) return {};
  const std::string chosen = choose_algorithms(what.configured, what.usual);
  for (const ssh_options_e option : what.options)
    if (chosen.empty() || ssh_options_set(session.raw(), option, chosen.c_str()) != SSH_OK)
      return fail(ErrorKind::kInvalid,
                  "the ssh config's {} {} leaves none that libssh knows: add one of {}",
                  what.keyword, what.configured, what.usual);
  return {};
}

}  // namespace

Error phase_error(const Target& target, std::string_view phase, const Error& error) {
  return error.at(fmt::format("{}: {}", target.written, phase));
}

std::vector<std::string> Targets::config_files() const {
  if (options_.config_file == "none") return {};
  if (!options_.config_file.empty()) return {expand_home(options_.config_file)};
  return {io::home_dir() + "/.ssh/config", "/etc/ssh/ssh_config"};
}

const std::string& Targets::given_user(const Host& host) const {
  return host.user.empty() ? options_.user : host.user;
}

std::uint16_t Targets::given_port(const Host& host) const {
  return host.port != 0 ? host.port : options_.port;
}

SshHostConfig Targets::read_files(const Host& host) const {
  return read_ssh_config(config_files(), host.name, given_user(host), given_port(host));
}

OpenSsh::Question Targets::question(const Host& host) const {
  return {host.name, given_user(host), given_port(host), expand_home(options_.config_file)};
}

io::awaitable<Result<Target>> Targets::find(Host host) const {
  SshHostConfig config = read_files(host);
  if (!config.undecided.empty()) {
    auto settings = co_await openssh_->settings(question(host), config);
    if (!settings)
      co_return tl::unexpected(settings.error().at(fmt::format("{}: ssh config", host)));
    config = std::move(*settings);
  }
  if (!config.refused.empty())
    co_return fail(ErrorKind::kInvalid, "{}: ssh config: {}", host, config.refused);
  for (const std::string& note : config.ignored)
    // Not of Debian's own ssh_config, which sends the locale.
    if (!note.starts_with("/etc/ssh/")) log_->warn(note);
  co_return make(host, std::move(config));
}

Target Targets::read(const Host& host) const {
  const SshHostConfig* answered = openssh_->known(question(host));
  return make(host, answered != nullptr ? *answered : read_files(host));
}

Target Targets::make(const Host& host, SshHostConfig config) const {
  Target target;
  target.written = to_string(host);
  target.name = host.name;
  target.config = std::move(config);
  target.hostname = target.config.hostname;
  target.user = !given_user(host).empty()     ? given_user(host)
                : !target.config.user.empty() ? target.config.user
                                              : own_user_name();
  target.port = given_port(host) != 0     ? given_port(host)
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
  const SshHostConfig& config = target.config;
  int silent = SSH_LOG_NOLOG;
  bool no = false;
  ssh_options_set(raw, SSH_OPTIONS_HOST, config.hostname.c_str());
  ssh_options_set(raw, SSH_OPTIONS_PROCESS_CONFIG, &no);
  ssh_options_set(raw, SSH_OPTIONS_LOG_VERBOSITY, &silent);
  // libssh would read these files again for every session.
  ssh_options_set(raw, SSH_OPTIONS_KNOWNHOSTS, "/dev/null");
  ssh_options_set(raw, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null");
  if (ssh_options_set(raw, SSH_OPTIONS_USER, target.user.c_str()) != SSH_OK)
    return fail(ErrorKind::kInvalid, "user {}: {}", target.user, session.last_error());
  ssh_options_set(raw, SSH_OPTIONS_KEY_EXCHANGE, kKeyExchange);
  ssh_options_set(raw, SSH_OPTIONS_HOSTKEYS, host_key_types.c_str());
  const std::vector<Algorithms> lists = {
      {"Ciphers", config.ciphers, kCiphers, {SSH_OPTIONS_CIPHERS_C_S, SSH_OPTIONS_CIPHERS_S_C}},
      {"MACs", config.macs, kMacs, {SSH_OPTIONS_HMAC_C_S, SSH_OPTIONS_HMAC_S_C}},
      {"KexAlgorithms", config.key_exchange, kKeyExchange, {SSH_OPTIONS_KEY_EXCHANGE}},
      {"HostKeyAlgorithms", config.host_key_types, host_key_types, {SSH_OPTIONS_HOSTKEYS}},
      {"PubkeyAcceptedAlgorithms",
       config.user_key_types,
       kUserKeyTypes,
       {SSH_OPTIONS_PUBLICKEY_ACCEPTED_TYPES}}};
  for (const Algorithms& list : lists)
    if (auto set = set_algorithms(session, list); !set) return set;
  if (config.compression) ssh_options_set(raw, SSH_OPTIONS_COMPRESSION, "yes");
  if (config.rekey_bytes > 0) ssh_options_set(raw, SSH_OPTIONS_REKEY_DATA, &config.rekey_bytes);
  // libssh counts it in 32 bits of milliseconds.
  const auto rekey_s = static_cast<std::uint32_t>(std::min(
      seconds(config.rekey_time), double{std::numeric_limits<std::uint32_t>::max()} / 1e3));
  if (rekey_s > 0) ssh_options_set(raw, SSH_OPTIONS_REKEY_TIME, &rekey_s);
  return {};
}

AuthPlan Targets::auth_plan(const Target& target, Duration agent_deadline) const {
  AuthPlan plan;
  plan.user = target.user;
  plan.copy_words =
      fmt::format("{}{}@{}", target.port == 22 ? "" : fmt::format("-p {} ", target.port),
                  target.user, target.name);
  plan.agent_deadline = agent_deadline;
  for (const std::string& file : options_.identities)
    plan.identity_files.push_back(expand_home(file));
  const auto& configured = target.config.identity_files;
  plan.identity_files.insert(plan.identity_files.end(), configured.begin(), configured.end());
  plan.usual_files = plan.identity_files.empty() && !target.config.has_identities;
  if (plan.usual_files)
    for (const char* name : {"id_ed25519", "id_ecdsa", "id_rsa"})
      plan.identity_files.push_back(fmt::format("{}/.ssh/{}", io::home_dir(), name));
  // As with OpenSSH: named certificates replace those that lie beside the keys.
  plan.certificate_files = target.config.certificate_files;
  if (plan.certificate_files.empty())
    for (const std::string& file : plan.identity_files)
      plan.certificate_files.push_back(certificate_beside(file));
  plan.identities_only = target.config.identities_only;
  const std::string& agent = target.config.identity_agent;
  if (agent != "none")
    plan.agent_socket = agent.empty() ? io::variable("SSH_AUTH_SOCK").value_or("") : agent;
  return plan;
}

std::string Targets::ssh_command(const Host& host) const {
  std::string line =
      fmt::format("ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ConnectTimeout={:.0f}",
                  std::max(1.0, seconds(options_.connect_timeout)));
  const io::HostKeyPolicy policy = read(host).host_keys;
  const bool is_off = policy == io::HostKeyPolicy::kOff;
  line += is_off                                    ? " -o StrictHostKeyChecking=no"
          : policy == io::HostKeyPolicy::kAcceptNew ? " -o StrictHostKeyChecking=accept-new"
                                                    : " -o StrictHostKeyChecking=yes";
  if (is_off) line += " -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR";
  line += file_words(options_);
  if (const auto port = given_port(host); port != 0) line += fmt::format(" -p {}", port);
  if (const auto& user = given_user(host); !user.empty()) line += " -l " + shell_word(user);
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
