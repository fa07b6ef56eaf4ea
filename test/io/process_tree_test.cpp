#include "io/process_tree.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>

#include "io/subprocess.h"
#include "test/support/catch.h"

using namespace dt;

namespace {

/// A process that sleeps until this is destroyed; `script` runs before.
class Sleeper {
 public:
  explicit Sleeper(const std::string& script = "") {
    auto ready = io::make_pipe();
    REQUIRE(ready);
    const auto pid =
        io::spawn("sh", {"sh", "-c", script + "echo; exec sleep 1000"},
                  {STDIN_FILENO, ready->write.get(), STDERR_FILENO}, io::ProcessGroup::kOwn);
    REQUIRE(pid);
    pid_ = *pid;
    char byte = 0;
    REQUIRE(::read(ready->read.get(), &byte, 1) == 1);
  }
  ~Sleeper() {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

/// Kills what lives below this process and reaps it.
void end_all() {
  for (;;) {
    for (const auto& one : io::descendants(::getpid())) io::signal_pidfd(one, SIGKILL);
    if (::waitpid(-1, nullptr, 0) < 0) return;
  }
}

/// The text that a child of this process writes, a subreaper: `body` returns it.
template <class Body>
std::string in_subreaper(Body body) {
  auto pipe = io::make_pipe();
  REQUIRE(pipe);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const std::string said = body();
    end_all();
    [[maybe_unused]] const ssize_t n = ::write(pipe->write.get(), said.data(), said.size());
    ::_exit(0);
  }
  pipe->write.reset();
  std::string said(4096, '\0');
  const ssize_t n = ::read(pipe->read.get(), said.data(), said.size());
  said.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  ::waitpid(child, nullptr, 0);
  return said;
}

/// A child that sleeps.
pid_t fork_sleeper() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::pause();
    ::_exit(0);
  }
  return pid;
}

}  // namespace

TEST_CASE("process tree: descendants are found whoever's child they are", "[io]") {
  SECTION("a child that another thread has forked") {
    CHECK(in_subreaper([] {
            std::size_t found = 0;
            std::thread([&] {
              fork_sleeper();
              found = io::descendants(::getpid()).size();
            }).join();
            return std::to_string(found);
          }) == "1");
  }
  SECTION("an orphan") {
    CHECK(in_subreaper([] {
            const pid_t parent = ::fork();
            if (parent == 0) {
              ::setsid();
              fork_sleeper();
              ::_exit(0);
            }
            ::waitpid(parent, nullptr, 0);
            return std::to_string(io::descendants(::getpid()).size());
          }) == "1");
  }
  SECTION("without those that are spared, and all below them") {
    CHECK(in_subreaper([] {
            const pid_t spared = ::fork();
            if (spared == 0) {
              fork_sleeper();
              ::pause();
            }
            fork_sleeper();
            while (io::descendants(::getpid()).size() < 3) std::this_thread::yield();
            return std::to_string(io::descendants(::getpid(), {spared}).size());
          }) == "1");
  }
  SECTION("an ended child is not alive, and not found") {
    CHECK(in_subreaper([] {
            const pid_t ended = ::fork();
            if (ended == 0) ::_exit(0);
            siginfo_t info{};
            ::waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT);
            return std::to_string(io::descendants(::getpid()).size());
          }) == "0");
  }
}

TEST_CASE("process tree: a mark is a whole entry of the environment, of a descendant", "[io]") {
  const Sleeper above("export DT_TREE_TEST=a/1; sleep 1000 & ");
  const Sleeper longer("export DT_TREE_TEST=a/12; ");
  const auto count = [](pid_t root, const char* entry) {
    return io::marked_descendants(root, entry).size();
  };
  // They show it from their last exec on.
  while (count(::getpid(), "DT_TREE_TEST=a/1") < 2) std::this_thread::yield();
  while (count(::getpid(), "DT_TREE_TEST=a/12") < 1) std::this_thread::yield();
  CHECK(count(::getpid(), "DT_TREE_TEST=a/1") == 2);
  CHECK(count(above.pid(), "DT_TREE_TEST=a/1") == 1);
  CHECK(count(longer.pid(), "DT_TREE_TEST=a/1") == 0);
  CHECK(count(::getpid(), "DT_TREE_TEST=a/") == 0);
}

TEST_CASE("process tree: what a forker has put into its process group is a process's own", "[io]") {
  const std::string said = in_subreaper([] {
    const pid_t root = fork_sleeper();
    ::setpgid(root, root);
    auto ready = io::make_pipe();
    const pid_t forker = ::fork();
    if (forker == 0) {
      fork_sleeper();  // of the forker's own group
      const pid_t child = fork_sleeper();
      ::setpgid(child, root);
      [[maybe_unused]] const ssize_t n = ::write(ready->write.get(), "x", 1);
      ::pause();
    }
    char byte = 0;
    [[maybe_unused]] const ssize_t n = ::read(ready->read.get(), &byte, 1);
    const std::string states = io::process_states(root, {forker});
    return fmt::format("{} {}", std::count(states.begin(), states.end(), ';'),
                       io::resident_bytes(root, {forker}) > io::resident_bytes(root));
  });
  CHECK(said == "1 true");
}

TEST_CASE("process tree: the memory of what another thread has forked counts", "[io]") {
  constexpr std::size_t kSize = std::size_t{64} << 20;
  CHECK(in_subreaper([] {
          std::string verdict;
          std::thread([&] {
            auto ready = io::make_pipe();
            const pid_t child = ::fork();
            if (child == 0) {
              void* memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              std::memset(memory, 1, kSize);
              [[maybe_unused]] const ssize_t n = ::write(ready->write.get(), "x", 1);
              ::pause();
            }
            char byte = 0;
            [[maybe_unused]] const ssize_t n = ::read(ready->read.get(), &byte, 1);
            verdict = io::resident_bytes(::getpid()) > kSize ? "counts" : "is missing";
          }).join();
          return verdict;
        }) == "counts");
}
