#include "launcher/backend/ssh/host_key.h"

#include <libssh/libssh.h>

#include <algorithm>

#include "launcher/backend/ssh/key_store.h"

namespace dt::launcher {
namespace {

constexpr std::string_view kHostKeyTypes[] = {
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"};

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
  HostKey host_key;
  host_key.base64 = public_base64(raw);
  if (host_key.base64.empty()) return fail(ErrorKind::kProtocol, "the server's key cannot be read");
  const char* ecdsa = ssh_pki_key_ecdsa_name(raw);
  const bool is_ecdsa = ecdsa != nullptr && std::string_view(ecdsa).starts_with("ecdsa");
  host_key.type = is_ecdsa ? ecdsa : ssh_key_type_to_char(ssh_key_type(raw));
  return host_key;
}

}  // namespace

KnownHosts& HostKeys::known_hosts(const Target& target) {
  std::vector<std::string> files = target.config.user_known_hosts;
  if (files.empty())
    files = {io::home_dir() + "/.ssh/known_hosts", io::home_dir() + "/.ssh/known_hosts2"};
  const auto& global = target.config.global_known_hosts;
  files.insert(files.end(), global.begin(), global.end());
  if (global.empty())
    files.insert(files.end(), {"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"});
  return known_.try_emplace(files, files).first->second;
}

std::string HostKeys::types(const Target& target) {
  std::vector<std::string> types;
  if (target.host_keys != io::HostKeyPolicy::kOff)
    types = known_hosts(target).key_types(target.key_name, target.key_port);
  std::erase_if(types, [](const std::string& type) {
    return std::ranges::count(kHostKeyTypes, std::string_view(type)) == 0;
  });
  for (const std::string_view type : kHostKeyTypes)
    if (std::ranges::count(types, type) == 0) types.emplace_back(type);
  std::ranges::replace(types, "ssh-rsa", "rsa-sha2-512,rsa-sha2-256");
  return fmt::format("{}", fmt::join(types, ","));
}

Result<void> HostKeys::check(SshSession& session, const Target& target) {
  if (target.host_keys == io::HostKeyPolicy::kOff) return {};
  std::string print;
  const auto key = server_key(session.raw(), print);
  if (!key) return tl::unexpected(key.error());
  KnownHosts& index = known_hosts(target);
  const std::string name = known_hosts_name(target.key_name, target.key_port);
  const KnownHosts::Finding found = index.check(target.key_name, target.key_port, *key);
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
                  "machine was reinstalled: ssh-keygen -f {} -R '{}'; if not, someone may be in "
                  "between",
                  key->type, print, found.place, file, name);
    case KnownHosts::Verdict::kOtherType:
      return fail(ErrorKind::kDenied,
                  "the server shows only a {} key {}, but {} knows it by another type of key: "
                  "nothing was started there. If the machine was reinstalled: ssh-keygen -f {} -R "
                  "'{}'",
                  key->type, print, found.place, file, name);
    case KnownHosts::Verdict::kAuthority:
      return fail(
          ErrorKind::kDenied,
          "the server's {} key {} is not known; {} (@cert-authority) would vouch for it, but "
          "libssh cannot verify certificates of hosts: nothing was started there. Add the "
          "host's own key to {} (ssh-keyscan, after comparing it)",
          key->type, print, found.place, index.first_file());
    case KnownHosts::Verdict::kUnknown:
      break;
  }
  if (target.host_keys == io::HostKeyPolicy::kStrict)
    return fail(ErrorKind::kDenied,
                "the server's {} key {} is not in {}: add it (ssh-keyscan, after comparing it), or "
                "allow new hosts with --ssh-known-hosts accept-new",
                key->type, print, index.first_file());
  if (const auto added = index.add(target.key_name, target.key_port, *key); !added)
    log_->warn(fmt::format("{}: the new host key is not remembered: {}", target.written,
                           added.error().message));
  return {};
}

}  // namespace dt::launcher
