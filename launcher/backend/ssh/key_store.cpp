#include "launcher/backend/ssh/key_store.h"

#include <libssh/libssh.h>
#include <unistd.h>

#include <fstream>

namespace dt::launcher {
namespace {

/// The base64 part of a public key file, "type base64 comment".
std::string public_part(const std::string& path) {
  std::ifstream words(path);
  std::string type;
  std::string base64;
  words >> type >> base64;
  return base64;
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
  if (::access(path.c_str(), F_OK) != 0) return entry;
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
  entry.base64 = public_part(path + ".pub");
  entry.problem = encrypted ? "is encrypted and no ssh-agent holds it (ssh-add it first)"
                            : "is not a private key libssh can read";
  return entry;
}

}  // namespace dt::launcher
