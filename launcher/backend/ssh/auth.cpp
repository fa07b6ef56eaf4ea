#include "launcher/backend/ssh/auth.h"

#include <libssh/libssh.h>

#include <algorithm>

#include "launcher/backend/ssh/ssh_agent.h"
#include "launcher/backend/ssh/ssh_bytes.h"

namespace dt::launcher {
namespace {

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

/// One login: the keys offered so far, and the notes for its error.
class Login {
 public:
  Login(std::shared_ptr<SshSession> session, AuthPlan plan, KeyStore& keys, io::ThreadPool& threads)
      : session_(std::move(session)), plan_(std::move(plan)), keys_(&keys), threads_(&threads) {}

  io::awaitable<Result<void>> run() {
    bool accepted = co_await offer_files();
    if (!accepted && session_->alive() && !plan_.agent_socket.empty())
      accepted = co_await offer_agent();
    if (accepted) co_return Result<void>();
    co_return tl::unexpected(refusal());
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
      tried_.push_back(path);
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
    tried_.push_back(path);
    offered_.push_back(encode_base64(keys_->certificate(path).blob));
    refused_certificate_ = path;
  }

  io::awaitable<bool> offer_agent() {
    auto held = co_await agent_identities(plan_.agent_socket, plan_.agent_deadline);
    if (!held) {
      unusable_.push_back(held.error().message);
      co_return false;
    }
    if (held->empty()) unusable_.emplace_back("the ssh-agent holds no key");
    std::vector<AgentIdentity> chosen = choose(with_certificates(*held));
    if (chosen.empty()) co_return false;
    std::vector<std::string> names;
    for (const AgentIdentity& identity : chosen)
      names.push_back(fmt::format("agent key '{}'", identity.comment));
    std::string problem;
    const int rc = co_await authenticate_by_agent(
        session_, plan_.agent_socket, plan_.agent_deadline, std::move(chosen), *threads_, problem);
    if (is_accepted(rc)) co_return true;
    tried_.insert(tried_.end(), names.begin(), names.end());
    if (!problem.empty()) unusable_.push_back(problem);
    co_return false;
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
    partial_ |= rc == SSH_AUTH_PARTIAL;
    return rc == SSH_AUTH_SUCCESS;
  }

  Error refusal() {
    if (partial_)
      return {ErrorKind::kDenied,
              fmt::format("a key was accepted for user {}, but the server wants a further proof "
                          "(password or code), which is not supported",
                          plan_.user)};
    if (!session_->alive() && session_->why().kind == ErrorKind::kTimeout) return session_->why();
    note_unusable_files();
    return {
        ErrorKind::kDenied,
        fmt::format(
            "user {} was refused; tried {}{}{}: is the public key in that user's "
            "~/.ssh/authorized_keys there{}?",
            plan_.user, tried_.empty() ? "nothing" : fmt::format("{}", fmt::join(tried_, ", ")),
            unusable_.empty() ? "" : fmt::format("; not usable: {}", fmt::join(unusable_, "; ")),
            session_->alive() ? "" : fmt::format(" ({})", session_->why().message),
            refused_certificate_.empty()
                ? ""
                : fmt::format(", or is the certificate valid for that user (ssh-keygen -L -f {})",
                              refused_certificate_))};
  }

  void note_unusable_files() {
    for (const std::string& path : plan_.identity_files) {
      const KeyStore::Entry& entry = keys_->get(path);
      if (!entry.exists && !plan_.usual_files) unusable_.push_back(path + " does not exist");
      if (!entry.problem.empty() && !contains(offered_, entry.base64))
        unusable_.push_back(fmt::format("{} {}", path, entry.problem));
    }
    for (const std::string& path : plan_.certificate_files) {
      const KeyStore::Certificate& certificate = keys_->certificate(path);
      const bool is_beside =
          std::any_of(plan_.identity_files.begin(), plan_.identity_files.end(),
                      [&](const std::string& file) { return certificate_beside(file) == path; });
      if (!certificate.exists && !is_beside) unusable_.push_back(path + " does not exist");
      if (!certificate.problem.empty())
        unusable_.push_back(fmt::format("{} {}", path, certificate.problem));
      else if (certificate.exists && !is_beside &&
               !contains(offered_, encode_base64(certificate.blob)))
        unusable_.push_back(path + " belongs to none of these keys");
    }
  }

  std::shared_ptr<SshSession> session_;
  AuthPlan plan_;
  KeyStore* keys_;
  io::ThreadPool* threads_;
  std::vector<std::string> offered_;  ///< Public parts: no key is offered twice.
  std::vector<std::string> tried_;
  std::vector<std::string> unusable_;
  std::string refused_certificate_;
  bool partial_ = false;
};

}  // namespace

std::string certificate_beside(const std::string& key_file) { return key_file + "-cert.pub"; }

io::awaitable<Result<void>> authenticate(std::shared_ptr<SshSession> session, AuthPlan plan,
                                         KeyStore& keys, io::ThreadPool& threads) {
  Login login(std::move(session), std::move(plan), keys, threads);
  co_return co_await login.run();
}

}  // namespace dt::launcher
