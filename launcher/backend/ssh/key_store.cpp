#include "launcher/backend/ssh/key_store.h"

#include <libssh/libssh.h>
#include <unistd.h>

#include <fstream>

#include "launcher/backend/ssh/ssh_bytes.h"

namespace dt::launcher {
namespace {

/// The base64 part of a public key file, "type base64 comment"; empty: it is none.
std::string public_part(const std::string& path) {
  std::ifstream words(path);
  std::string type;
  std::string base64;
  words >> type >> base64;
  return ssh_key_type_from_name(type.c_str()) == SSH_KEYTYPE_UNKNOWN ? std::string() : base64;
}

}  // namespace

std::string public_base64(ssh_key_struct* key) {
  char* base64 = nullptr;
  if (ssh_pki_export_pubkey_base64(key, &base64) != SSH_OK || base64 == nullptr) return {};
  std::string text = base64;
  ssh_string_free_char(base64);
  return text;
}

void FreeKey::operator()(ssh_key_struct* key) const { ssh_key_free(key); }

const KeyStore::Entry& KeyStore::get(const std::string& path) {
  const auto [at, fresh] = entries_.try_emplace(path);
  Entry& entry = at->second;
  if (!fresh) return entry;
  const std::string beside = public_part(path + ".pub");
  // Of a key that an ssh-agent holds there may be no more than the public part.
  const bool is_absent = ::access(path.c_str(), F_OK) != 0;
  entry.base64 = is_absent ? beside : public_part(path);
  entry.is_public = !entry.base64.empty();
  if (is_absent || entry.is_public) return entry;
  entry.exists = true;
  if (::access(path.c_str(), R_OK) != 0) {
    entry.problem = "cannot be read";
    return entry;
  }
  ssh_key key = nullptr;
  // libssh asks the callback for a passphrase: the key is encrypted, not broken.
  bool encrypted = false;
  auto ask = [](const char*, char*, std::size_t, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
  };
  const int rc = ssh_pki_import_privkey_file(path.c_str(), nullptr, ask, &encrypted, &key);
  if (rc == SSH_OK && key != nullptr) {
    entry.key.reset(key);
    entry.base64 = public_base64(key);
    return entry;
  }
  entry.base64 = beside;
  entry.problem = encrypted ? "is encrypted and no ssh-agent holds it (ssh-add it first)"
                            : "is not a private key libssh can read";
  return entry;
}

const KeyStore::Certificate& KeyStore::certificate(const std::string& path) {
  const auto [at, fresh] = certificates_.try_emplace(path);
  Certificate& certificate = at->second;
  if (!fresh || ::access(path.c_str(), F_OK) != 0) return certificate;
  certificate.exists = true;
  ssh_key key = nullptr;
  if (ssh_pki_import_cert_file(path.c_str(), &key) != SSH_OK || key == nullptr) {
    certificate.problem = "is not a certificate libssh can read";
    return certificate;
  }
  certificate.key.reset(key);
  certificate.blob = decode_base64(public_part(path));
  return certificate;
}

bool KeyStore::Certificate::certifies(const std::string& base64) const {
  const std::string key_blob = decode_base64(base64);
  std::string_view public_key = key_blob;
  std::string_view certified = blob;
  std::string type;
  std::string nonce;
  // A certificate has a nonce between its type and the fields of the public key.
  return take_string(public_key, type) && take_string(certified, type) &&
         take_string(certified, nonce) && !public_key.empty() && certified.starts_with(public_key);
}

ssh_key KeyStore::certified(const std::string& key, const std::string& certificate) {
  const auto [at, fresh] = certified_.try_emplace({key, certificate});
  if (!fresh) return at->second.get();
  const Entry& entry = get(key);
  const Certificate& with = this->certificate(certificate);
  if (!entry.key || !with.key || !with.certifies(entry.base64)) return nullptr;
  SshKey both(ssh_key_dup(entry.key.get()));
  if (both && ssh_pki_copy_cert_to_privkey(with.key.get(), both.get()) == SSH_OK)
    at->second = std::move(both);
  return at->second.get();
}

}  // namespace dt::launcher
