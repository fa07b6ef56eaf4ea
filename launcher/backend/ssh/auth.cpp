#include "launcher/backend/ssh/auth.h"

#include <libssh/libssh.h>

#include <algorithm>

#include "launcher/backend/ssh/ssh_agent.h"
#include "launcher/backend/ssh/ssh_bytes.h"

namespace dt::launcher {
namespace {

constexpr std::pair<int, const char*> kMethods[] = {
    {SSH_AUTH_METHOD_PUBLICKEY, "publickey"},
    {SSH_AUTH_METHOD_PASSWORD, "password"},
    {SSH_AUTH_METHOD_INTERACTIVE, "keyboard-interactive"},
    {SSH_AUTH_METHOD_HOSTBASED, "hostbased"},
    {SSH_AUTH_METHOD_GSSAPI_MIC, "gssapi-with-mic"}};

/// Null: libssh does not know such keys.
SshKey public_key(std::string_view blob) {
  std::string_view rest = blob;
  std::string type;
  ssh_key key = nullptr;
  if (!take_string(rest, type)) return nullptr;
  const std::string base64 = encode_base64(blob);
  const auto import = type.find("-cert-v") == std::string::npos ? ssh_pki_import_pubkey_base64
                                                                : ssh_pki_import_cert_base64;
  import(base64.c_str(), ssh_key_type_from_name(type.c_str()), &key);
  return SshKey(key);
}

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::ranges::count(all, one) > 0;
}

/// One login: the keys offered so far, and the notes for its error.
class Login {
 public:
  Login(SessionPtr session, AuthPlan plan, KeyStore& keys, io::ThreadPool& threads)
      : session_(std::move(session)), plan_(std::move(plan)), keys_(&keys), threads_(&threads) {}

  io::awaitable<Result<void>> run() {
    bool accepted = co_await offer_files();
    if (!accepted && session_->alive() && !plan_.agent_socket.empty())
      accepted = co_await offer_agent();
    if (!accepted && refusal_.tried.empty() && session_->alive()) accepted = co_await ask_methods();
    if (accepted) co_return Result<void>();
    co_return tl::unexpected(refused());
  }

 private:
  /// True once the server has accepted one.
  io::awaitable<bool> offer_files() {
    for (const std::string& path : plan_.identity_files) {
      const KeyStore::Entry& entry = keys_->get(path);
      if (!entry.key || contains(offered_, entry.base64)) continue;
      for (const std::string& certificate : plan_.certificate_files) {
        ssh_key both = keys_->certified(path, certificate);
        if (both == nullptr || !session_->alive()) continue;
        if (co_await offer(both)) co_return true;
        note_certificate(certificate);
      }
      if (!session_->alive()) break;
      if (co_await offer(entry.key.get())) co_return true;
      refusal_.tried.push_back(path);
      offered_.push_back(entry.base64);
      if (!session_->alive()) break;
    }
    co_return false;
  }

  /// True if the server accepts it.
  io::awaitable<bool> offer(ssh_key key) {
    auto call = [session = session_.get(), key] {
      return ssh_userauth_publickey(session->raw(), nullptr, key);
    };
    const int rc = co_await session_->repeat(call, SSH_AUTH_AGAIN);
    co_return is_accepted(rc);
  }

  void note_certificate(const std::string& path) {
    refusal_.tried.push_back(path);
    offered_.push_back(encode_base64(keys_->certificate(path).blob));
    refusal_.certificate = path;
  }

  io::awaitable<bool> offer_agent() {
    auto held = co_await agent_identities(plan_.agent_socket, plan_.agent_deadline);
    if (!held) {
      refusal_.unusable.push_back(held.error().message);
      co_return false;
    }
    if (held->empty()) refusal_.unusable.emplace_back("the ssh-agent holds no key");
    std::vector<AgentIdentity> chosen = choose(with_certificates(*held));
    // Which keys the server was shown is known only if each is shown by itself.
    std::size_t shown = 0;
    while (shown < chosen.size() && session_->alive()) {
      const SshKey key = public_key(chosen[shown].blob);
      auto call = [session = session_.get(), raw = key.get()] {
        return ssh_userauth_try_publickey(session->raw(), nullptr, raw);
      };
      int rc = SSH_AUTH_DENIED;
      if (key) rc = co_await session_->repeat(call, SSH_AUTH_AGAIN);
      if (rc == SSH_AUTH_SUCCESS) break;
      note_agent_key(chosen[shown++]);
    }
    if (shown == chosen.size() || !session_->alive()) co_return false;
    chosen.erase(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(shown));
    std::string problem;
    const int rc = co_await authenticate_by_agent(session_, plan_.agent_socket,
                                                  plan_.agent_deadline, chosen, *threads_, problem);
    if (is_accepted(rc)) co_return true;
    for (const AgentIdentity& identity : chosen) note_agent_key(identity);
    if (!problem.empty()) refusal_.unusable.push_back(problem);
    co_return false;
  }

  void note_agent_key(const AgentIdentity& identity) {
    refusal_.tried.push_back(fmt::format("agent key '{}'", identity.comment));
  }

  /// Logs in with nothing, which few servers accept: the others say what they want instead.
  io::awaitable<bool> ask_methods() {
    auto call = [session = session_.get()] { return ssh_userauth_none(session->raw(), nullptr); };
    const int rc = co_await session_->repeat(call, SSH_AUTH_AGAIN);
    const int offered = ssh_userauth_list(session_->raw(), nullptr);
    for (const auto& [method, name] : kMethods)
      if ((offered & method) != 0) refusal_.methods.emplace_back(name);
    co_return is_accepted(rc);
  }

  /// The agent's keys, and before each the certificates of ours for it.
  std::vector<AgentIdentity> with_certificates(const std::vector<AgentIdentity>& held) {
    std::vector<AgentIdentity> all;
    for (const AgentIdentity& identity : held) {
      for (const std::string& path : plan_.certificate_files) {
        const KeyStore::Certificate& certificate = keys_->certificate(path);
        if (certificate.certifies(identity.base64()))
          all.push_back({certificate.blob, path, identity.blob});
      }
      all.push_back(identity);
    }
    return all;
  }

  /// The agent's keys that were not offered yet, those of the identity files first.
  std::vector<AgentIdentity> choose(const std::vector<AgentIdentity>& held) {
    std::vector<std::string> preferred;
    for (const std::string& path : plan_.certificate_files)
      if (const auto& one = keys_->certificate(path); !one.blob.empty())
        preferred.push_back(encode_base64(one.blob));
    for (const std::string& path : plan_.identity_files)
      if (const auto& entry = keys_->get(path); !entry.base64.empty())
        preferred.push_back(entry.base64);
    std::vector<AgentIdentity> chosen;
    for (const bool is_preferred : {true, false}) {
      if (!is_preferred && plan_.identities_only) break;
      for (const AgentIdentity& identity : held) {
        const std::string base64 = identity.base64();
        if (contains(preferred, base64) != is_preferred || contains(offered_, base64)) continue;
        chosen.push_back(identity);
        offered_.push_back(base64);
      }
    }
    return chosen;
  }

  bool is_accepted(int rc) {
    refusal_.wants_more |= rc == SSH_AUTH_PARTIAL;
    return rc == SSH_AUTH_SUCCESS;
  }

  Error refused() {
    if (!session_->alive() && session_->why().kind == ErrorKind::kTimeout) return session_->why();
    note_unusable_files();
    refusal_.user = plan_.user;
    refusal_.copy_words = plan_.copy_words;
    if (!session_->alive()) refusal_.ended = session_->why().message;
    return refusal_error(refusal_);
  }

  void note_unusable_files() {
    for (const std::string& path : plan_.identity_files) {
      const KeyStore::Entry& entry = keys_->get(path);
      if (entry.is_public && !contains(offered_, entry.base64))
        refusal_.unusable.push_back(path +
                                    " names a public key, and no ssh-agent holds its private key");
      else if (!entry.exists && !entry.is_public && !plan_.usual_files)
        refusal_.unusable.push_back(path + " does not exist");
      if (!entry.problem.empty() && !contains(offered_, entry.base64))
        refusal_.unusable.push_back(fmt::format("{} {}", path, entry.problem));
    }
    for (const std::string& path : plan_.certificate_files) {
      const KeyStore::Certificate& certificate = keys_->certificate(path);
      const bool is_beside = std::ranges::count(plan_.identity_files, path, certificate_beside) > 0;
      if (!certificate.exists && !is_beside) refusal_.unusable.push_back(path + " does not exist");
      if (!certificate.problem.empty())
        refusal_.unusable.push_back(fmt::format("{} {}", path, certificate.problem));
      else if (certificate.exists && !is_beside &&
               !contains(offered_, encode_base64(certificate.blob)))
        refusal_.unusable.push_back(path + " belongs to none of these keys");
    }
  }

  SessionPtr session_;
  AuthPlan plan_;
  KeyStore* keys_;
  io::ThreadPool* threads_;
  std::vector<std::string> offered_;  ///< Public parts: no key is offered twice.
  Refusal refusal_;
};

}  // namespace

Error refusal_error(const Refusal& refusal) {
  const auto list = [](const std::vector<std::string>& all, const char* separator) {
    return fmt::format("{}", fmt::join(all, separator));
  };
  if (refusal.wants_more)
    return {ErrorKind::kDenied,
            fmt::format("a key was accepted for user {}, but the server wants a further proof "
                        "(password or code), which is not supported",
                        refusal.user)};
  std::string text = fmt::format("user {} was refused; tried {}", refusal.user,
                                 refusal.tried.empty() ? "nothing" : list(refusal.tried, ", "));
  if (!refusal.unusable.empty()) text += "; not usable: " + list(refusal.unusable, "; ");
  if (!refusal.ended.empty()) text += fmt::format(" ({})", refusal.ended);
  const auto offers = [&](const char* method) { return contains(refusal.methods, method); };
  if (refusal.ended.find("Too many authentication failures") != std::string::npos) {
    text +=
        ": show the server the right key alone: IdentitiesOnly yes with its IdentityFile in the "
        "ssh config, or the key's file first, by -i";
  } else if (refusal.tried.empty()) {
    if (!refusal.methods.empty()) text += "; the server takes " + list(refusal.methods, ", ");
    const bool takes_keys = refusal.methods.empty() || offers("publickey");
    const bool needs_openssh = offers("gssapi-with-mic") || offers("hostbased");
    text += takes_keys
                ? ": put a key there (ssh-keygen, then ssh-copy-id " + refusal.copy_words + ")"
            : needs_openssh ? ""
                            : ": let it take keys (PubkeyAuthentication of sshd)";
    if (needs_openssh)
      text += fmt::format("{} let OpenSSH's client log in: --rsh 'ssh {{host}} {{command}}'",
                          takes_keys ? ", or" : ":");
  } else {
    text += ": is the public key in that user's ~/.ssh/authorized_keys there";
    if (!refusal.certificate.empty())
      text += fmt::format(", or is the certificate valid for that user (ssh-keygen -L -f {})",
                          refusal.certificate);
    text += '?';
  }
  return {ErrorKind::kDenied, text};
}

std::string certificate_beside(const std::string& key_file) { return key_file + "-cert.pub"; }

io::awaitable<Result<void>> authenticate(SessionPtr session, AuthPlan plan, KeyStore& keys,
                                         io::ThreadPool& threads) {
  Login login(std::move(session), std::move(plan), keys, threads);
  co_return co_await login.run();
}

}  // namespace dt::launcher
