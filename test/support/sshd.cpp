#include "test/support/sshd.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>

#include "io/fd.h"

namespace dt::test {
namespace {

constexpr const char* kSshd = "/usr/sbin/sshd";

pid_t spawn(const std::vector<std::string>& argv, int out) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
  if (out >= 0)
    posix_spawn_file_actions_adddup2(&actions, out, 1);
  else
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_RDWR, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = -1;
  const int error =
      ::posix_spawnp(&pid, argv.front().c_str(), &actions, &attributes, words.data(), ::environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw std::runtime_error("cannot start " + argv.front());
  return pid;
}

std::uint16_t free_port() {
  const io::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof address;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

bool answers(std::uint16_t port) {
  const io::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

/// Children of a process, from /proc.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(entry.path() / "stat");
    std::string text;
    std::getline(in, text);
    const std::size_t close = text.rfind(')');
    if (close == std::string::npos) continue;
    std::istringstream rest(text.substr(close + 1));
    char state = 0;
    pid_t ppid = 0;
    rest >> state >> ppid;
    if (ppid == parent) found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace

TempDir::TempDir() {
  std::string name = "/tmp/dt-test-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_file(const std::string& path, const std::string& text, unsigned mode) {
  std::ofstream(path, std::ios::binary) << text;
  ::chmod(path.c_str(), mode);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string run_tool(const std::vector<std::string>& argv) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  const io::Fd in(ends[0]);
  io::Fd out(ends[1]);
  const pid_t pid = spawn(argv, out.get());
  out.reset();
  std::string text;
  char piece[4096];
  for (ssize_t n = 0; (n = ::read(in.get(), piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(n));
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status != 0) throw std::runtime_error(argv.front() + " failed: " + text);
  return text;
}

bool eventually(double seconds, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    ::poll(nullptr, 0, 10);
  }
  return true;
}

bool Sshd::available() {
  return ::access(kSshd, X_OK) == 0 && ::access("/usr/bin/ssh-keygen", X_OK) == 0;
}

Sshd::Sshd(SshdOptions options) {
  // As root, sshd needs its privilege separation folder.
  if (::getuid() == 0) ::mkdir("/run/sshd", 0755);
  for (const char* name : {"host_key", "user_key"})
    run_tool({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", dir_ / name});
  write_file(dir_ / "authorized_keys", read_file(dir_ / "user_key.pub"));
  std::filesystem::create_directory(cache());
  // Sessions skip this user's shell start files, which can take seconds.
  std::filesystem::create_directory(dir_ / "home");
  // sshd binds late; another process may take the port meanwhile, then the next is tried.
  for (int attempt = 0; attempt < 5; ++attempt) {
    port_ = free_port();
    std::string text = "Port " + std::to_string(port_) + "\nListenAddress 0.0.0.0\nHostKey " +
                       (dir_ / "host_key") + "\nAuthorizedKeysFile " + (dir_ / "authorized_keys") +
                       "\nPidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n"
                       "KbdInteractiveAuthentication no\nUseDNS no\nPrintMotd no\n"
                       "PrintLastLog no\nLogLevel VERBOSE\nSetEnv HOME=" +
                       (dir_ / "home") + " XDG_CACHE_HOME=" + cache() + "\nMaxStartups " +
                       options.max_startups + "\nMaxSessions " + options.max_sessions + "\n";
    for (const std::string& line : options.more) text += line + "\n";
    write_file(dir_ / "sshd_config", text);
    pid_ = spawn({kSshd, "-D", "-f", dir_ / "sshd_config", "-E", dir_ / "sshd.log"}, -1);
    bool ended = false;
    const bool up = eventually(15, [&] {
      ended = ::waitpid(pid_, nullptr, WNOHANG) == pid_;
      return ended || answers(port_);
    });
    if (up && !ended) {
      write_file(config(), "UserKnownHostsFile " + known_hosts() +
                               "\nGlobalKnownHostsFile /dev/null\nIdentityAgent none\n");
      return;
    }
    if (!ended) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }
  throw std::runtime_error("sshd does not start: " + log());
}

std::size_t Sshd::connections() const { return children_of(pid_).size(); }

void Sshd::kill_connections() {
  for (const pid_t child : children_of(pid_)) {
    // The session first, so that it cannot report its command's death.
    const std::vector<pid_t> below = children_of(child);
    ::kill(child, SIGKILL);
    for (const pid_t grandchild : below) ::kill(grandchild, SIGKILL);
  }
}

Sshd::~Sshd() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGSTOP);  // no new child while its children are looked for
  kill_connections();
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Host Sshd::host(int last) const { return Host{"", "127.0.0." + std::to_string(last), port_}; }

io::SshOptions Sshd::options() const {
  io::SshOptions options;
  options.config_file = config();
  options.identities = {user_key()};
  return options;
}

std::string Sshd::host_public_key() const {
  std::istringstream words(read_file(dir_ / "host_key.pub"));
  std::string type;
  std::string base64;
  words >> type >> base64;
  return type + " " + base64;
}

std::string Sshd::log() const { return read_file(dir_ / "sshd.log"); }

void Sshd::prepend_config(const std::string& text) {
  write_file(config(), text + "\n" + read_file(config()));
}

}  // namespace dt::test
