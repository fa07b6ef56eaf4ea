/// Private key files and the certificates that go with them, each read once per process.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

struct ssh_key_struct;

namespace dt::launcher {

struct FreeKey {
  void operator()(ssh_key_struct* key) const;
};
using SshKey = std::unique_ptr<ssh_key_struct, FreeKey>;

/// The public part of a key as key files have it; empty where libssh cannot write it.
[[nodiscard]] std::string public_base64(ssh_key_struct* key);

class KeyStore {
 public:
  struct Entry {
    SshKey key;           ///< Null when it cannot be used.
    std::string base64;   ///< Public part, also of a key that is not to be used.
    std::string problem;  ///< Why it cannot be used; empty when the file does not exist.
    bool exists = false;
    bool is_public = false;  ///< The file, or the .pub beside where it should be, is a public key.
  };
  const Entry& get(const std::string& path);

  /// A user certificate: a public key, signed by an authority.
  struct Certificate {
    SshKey key;           ///< Null when it cannot be used.
    std::string blob;     ///< As it goes over the wire.
    std::string problem;  ///< Why it cannot be used; empty when the file does not exist.
    bool exists = false;

    /// Whether it certifies the key with this public part, given as key files have it.
    [[nodiscard]] bool certifies(const std::string& base64) const;
  };
  const Certificate& certificate(const std::string& path);
  /// The private key of one file with the certificate of another; null where they do not belong
  /// together, or one cannot be used.
  [[nodiscard]] ssh_key_struct* certified(const std::string& key, const std::string& certificate);

 private:
  std::map<std::string, Entry> entries_;
  std::map<std::string, Certificate> certificates_;
  std::map<std::pair<std::string, std::string>, SshKey> certified_;
};

}  // namespace dt::launcher
