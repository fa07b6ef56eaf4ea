/// Any bytes as an ssh config and as known_hosts: an answer for every host, no harm. Include is
/// left out: it would read this machine's files.

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "launcher/backend/ssh/config.h"
#include "launcher/backend/ssh/known_hosts.h"
#include "test/fuzz/target.h"

using namespace dt;

namespace {

struct TemporaryFile {
  std::string path = "/tmp/dt-ssh-fuzz-XXXXXX";
  TemporaryFile() {
    const int fd = ::mkstemp(path.data());
    DT_CHECK(fd >= 0, "a temporary file");
    ::close(fd);
  }
  ~TemporaryFile() { ::unlink(path.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

void read_config(std::string_view text) {
  std::string low(text);
  for (char& c : low) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (low.find("include") != std::string::npos && low.find("include)") == std::string::npos) return;
  static const TemporaryFile kFile;
  std::ofstream(kFile.path, std::ios::binary | std::ios::trunc) << text;
  for (const std::string_view name : {"node1", "10.0.0.1", "::1"}) {
    const auto found = launcher::read_ssh_config({kFile.path}, name, "");
    DT_CHECK(!found.hostname.empty(), "a host has a name to connect to");
    DT_CHECK(found.alive_interval >= Duration{}, "no time is negative");
  }
}

void read_known_hosts(std::string_view text) {
  static const TemporaryFile kFile;
  std::ofstream(kFile.path, std::ios::binary | std::ios::trunc) << text;
  launcher::KnownHosts known({kFile.path});
  const launcher::HostKey key{"ssh-ed25519", "AAAA"};
  for (const std::uint16_t port : {std::uint16_t{0}, std::uint16_t{2222}}) {
    (void)known.key_types("node1", port);
    const auto before = known.check("node1", port, key);
    if (before.verdict == launcher::KnownHosts::Verdict::kRevoked) continue;
    DT_CHECK(known.add("node1", port, key), "a key can be added");
    DT_CHECK(known.check("node1", port, key).verdict == launcher::KnownHosts::Verdict::kMatch,
             "a key that was added is known");
    launcher::KnownHosts again({kFile.path});
    DT_CHECK(again.check("node1", port, key).verdict == launcher::KnownHosts::Verdict::kMatch,
             "and is found in the file");
  }
}

}  // namespace

DT_FUZZ_TARGET(ssh_files)
(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(bytes), size);
  read_config(in);
  read_known_hosts(in);
  return 0;
}
