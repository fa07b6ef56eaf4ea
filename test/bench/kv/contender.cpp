#include "test/bench/kv/contender.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "io/fd.h"
#include "io/process_tree.h"
#include "test/bench/kv/failure.h"

namespace dt::bench {

namespace {

// Limits until a contender's processes are ready, have executed an order, and have ended.
constexpr Duration kStartLimit = std::chrono::seconds(120);
constexpr Duration kOrderLimit = std::chrono::seconds(300);
constexpr Duration kEndLimit = std::chrono::seconds(20);

/// "ended with exit code 1", "was killed by signal 9".
std::string describe(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

/// In the child, between fork and its work.
void begin_child(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::signal(SIGPIPE, SIG_IGN);
}

int run_body(const std::string& name, const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "dtbench: {}: {}\n", name, e.what());
    return 1;
  }
}

}  // namespace

Children::~Children() {
  for (const auto& child : all_) ::kill(child.pid, SIGKILL);
  for (const auto& child : all_)
    while (::waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
}

void Children::fork(const std::string& name, const std::function<void()>& body) {
  const pid_t parent = ::getpid();
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw Failure(errno_error(errno, "start " + name));
  if (pid == 0) {
    all_.clear();  // the parent's
    begin_child(parent);
    const int code = run_body(name, body);
    std::fflush(nullptr);
    ::_exit(code);
  }
  all_.push_back({name, pid});
}

void Children::fork(const std::string& name, std::uint32_t count,
                    const std::function<void(std::uint32_t)>& body) {
  for (std::uint32_t i = 0; i < count; ++i)
    fork(fmt::format("{} {}", name, i), [&body, i] { body(i); });
}

void Children::run(const std::string& name, const std::vector<std::string>& argv) {
  std::vector<char*> words;
  for (const auto& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  fork(name, [&words] {
    ::execvp(words[0], words.data());
    throw Failure(errno_error(errno, fmt::format("run {}", words[0])));
  });
}

void Children::watch() {
  for (auto it = all_.begin(); it != all_.end(); ++it) {
    int status = 0;
    if (::waitpid(it->pid, &status, WNOHANG) != it->pid) continue;
    const std::string name = it->name;
    all_.erase(it);
    throw Failure("{} {}", name, describe(status));
  }
}

void Children::join(Duration limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!all_.empty()) {
    const Child child = all_.front();
    const io::Fd ended = io::open_pidfd(child.pid);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd look{ended.get(), POLLIN, 0};
    const int ready = ::poll(&look, 1, static_cast<int>(std::max<long>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) throw Failure("{} did not end", child.name);
    int status = 0;
    (void)::waitpid(child.pid, &status, 0);
    all_.erase(all_.begin());
    if (status != 0) throw Failure("{} {}", child.name, describe(status));
  }
}

void TempFolder::remove() {
  std::error_code ec;
  if (!path.empty()) std::filesystem::remove_all(std::exchange(path, {}), ec);
}

void Contender::await_ready() {
  control.await_ready(kStartLimit, [this] { children.watch(); });
}

void Contender::order(const Command& command) {
  control.order(command);
  control.await_done(kOrderLimit, [this] { children.watch(); });
}

std::uint64_t Contender::quit() {
  control.order({.order = Order::kQuit});
  children.join(kEndLimit);
  return control.bad();
}

}  // namespace dt::bench
