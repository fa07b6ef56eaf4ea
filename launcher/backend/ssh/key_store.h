/// Private key files, each read once per process.
#pragma once

#include <map>
#include <memory>
#include <string>

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
    std::string base64;   ///< Public part, also of an encrypted key when its .pub file is there.
    std::string problem;  ///< Why it cannot be used; empty when the file does not exist.
    bool exists = false;
  };
  const Entry& get(const std::string& path);

 private:
  std::map<std::string, Entry> entries_;
};

}  // namespace dt::launcher
