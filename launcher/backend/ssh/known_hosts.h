/// An index over known_hosts files. A file is parsed again only when its time or size has changed,
/// so that a thousand hosts against ten thousand hashed lines stay cheap.
///
/// Lines: comma lists of names and patterns (`*`, `?`, `!`), `[host]:port`, hashed `|1|salt|hash`,
/// `@revoked` (honoured), `@cert-authority` (found, but libssh verifies no certificate of a host).
/// One thread.
#pragma once

#include <openssl/sha.h>
#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/result.h"

namespace dt::launcher {

/// A public key as known_hosts writes it.
struct HostKey {
  std::string type;    ///< "ssh-ed25519"
  std::string base64;  ///< The key blob.
  friend bool operator==(const HostKey&, const HostKey&) = default;
};

class KnownHosts {
 public:
  /// New keys are appended to the first file.
  explicit KnownHosts(std::vector<std::string> files);

  enum class Verdict {
    kMatch,
    kUnknown,    ///< Nothing is known of this host.
    kChanged,    ///< Another key of this type is known.
    kOtherType,  ///< Only keys of other types are known.
    kAuthority,  ///< Only an authority that signs the keys of such hosts is known.
    kRevoked,
  };
  struct Finding {
    Verdict verdict = Verdict::kUnknown;
    std::string place;  ///< "file:line" of the entry that decided; empty when unknown.
  };

  /// `port` 0 or 22: the plain name; else "[name]:port".
  [[nodiscard]] Finding check(std::string_view name, std::uint16_t port, const HostKey& key);
  /// Types of the keys known for a host, to ask the server for those first.
  [[nodiscard]] std::vector<std::string> key_types(std::string_view name, std::uint16_t port);
  /// Appends one line to the first file, under a lock, making file and folder when missing. A key
  /// that is there already is not added twice.
  [[nodiscard]] Result<void> add(std::string_view name, std::uint16_t port, const HostKey& key);

  /// Where add() writes.
  [[nodiscard]] const std::string& first_file() const { return files_.front().path; }

 private:
  struct Entry {
    HostKey key;
    std::uint32_t file = 0;
    std::uint32_t line = 0;
    bool revoked = false;
    bool is_authority = false;
    std::vector<std::string> patterns;  ///< Set for lines with wildcards or negation.
  };
  /// HMAC-SHA1 with the salt as key; the two halves that depend on the salt alone are kept.
  struct Hashed {
    SHA_CTX inner;
    SHA_CTX outer;
    std::string digest;
    std::uint32_t entry = 0;
  };
  /// By which a change of a file is noticed.
  struct Stamp {
    std::int64_t mtime_ns = -1;
    std::int64_t size = -1;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  struct File {
    std::string path;
    Stamp stamp;
  };
  static Stamp stamp_of(const struct stat& file);
  void refresh();
  void load(std::uint32_t file);
  void add_line(std::string_view line, std::uint32_t file, std::uint32_t number);
  [[nodiscard]] const std::vector<std::uint32_t>& find(const std::string& name);

  std::vector<File> files_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::vector<std::uint32_t>> plain_;
  std::vector<std::uint32_t> patterned_;
  std::vector<Hashed> hashed_;
  std::unordered_map<std::string, std::vector<std::uint32_t>> found_;  ///< By looked-up name.
  std::vector<std::uint32_t> line_counts_;
};

/// "name" or "[name]:port", in lower case: how known_hosts names a host.
[[nodiscard]] std::string known_hosts_name(std::string_view name, std::uint16_t port);

}  // namespace dt::launcher
