/// A real sshd for tests: unprivileged, on a loopback address and a free high port, with its own
/// host and user keys in a temporary folder that it removes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/files/hosts.h"
#include "io/job/spec.h"

namespace dt::test {

/// A folder under /tmp, removed with everything in it.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void write_file(const std::string& path, const std::string& text, unsigned mode = 0600);
[[nodiscard]] std::string read_file(const std::string& path);
/// Runs argv and returns its stdout; aborts the test when it fails.
std::string run_tool(const std::vector<std::string>& argv);
/// Waits until `done` returns true; false after `seconds`.
bool eventually(double seconds, const std::function<bool()>& done);

struct SshdOptions {
  std::string max_startups = "1000";
  std::string max_sessions = "10";
  std::vector<std::string> more;  ///< Further lines of sshd_config.
};

class Sshd {
 public:
  /// Whether this machine has the programs of the fixture (sshd, ssh-keygen).
  [[nodiscard]] static bool available();

  explicit Sshd(SshdOptions options = {});
  /// Stops the listener and every connection.
  ~Sshd();
  Sshd(const Sshd&) = delete;
  Sshd& operator=(const Sshd&) = delete;

  /// 127.0.0.`last` with the port; all of them reach this one sshd.
  [[nodiscard]] Host host(int last = 1) const;
  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Options that connect: the user key, known_hosts in the folder, no other config.
  [[nodiscard]] io::SshOptions options() const;
  [[nodiscard]] std::string dir() const { return dir_.path(); }
  [[nodiscard]] std::string user_key() const { return dir_ / "user_key"; }
  [[nodiscard]] std::string known_hosts() const { return dir_ / "known_hosts"; }
  /// The home folder that sessions see as $HOME for ~/.cache.
  [[nodiscard]] std::string cache() const { return dir_ / "cache"; }
  /// "ssh-ed25519 AAAA..." of the server.
  [[nodiscard]] std::string host_public_key() const;
  [[nodiscard]] std::string config() const { return dir_ / "config"; }
  /// sshd's log.
  [[nodiscard]] std::string log() const;
  /// Connections that are up.
  [[nodiscard]] std::size_t connections() const;
  /// Kills the processes of every connection, as a crash of the machine's sshd would.
  void kill_connections();
  /// Prepends `text` to the config file of options().
  void prepend_config(const std::string& text);

 private:
  TempDir dir_;
  std::uint16_t port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace dt::test
