/// An SshBackend on its own loop, for tests with a real sshd (test/support/sshd.h).
#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/asio.h"
#include "io/task_group.h"
#include "launcher/backend/ssh/ssh.h"
#include "test/support/catch.h"
#include "test/support/sshd.h"

// A test on a machine without sshd reports that instead of failing.
#define NEEDS_SSHD()                                  \
  if (!Sshd::available()) {                           \
    WARN("SKIPPED: /usr/sbin/sshd is not installed"); \
    return;                                           \
  }                                                   \
  static_assert(true)

namespace dt::test {

using namespace std::chrono_literals;
using launcher::CommandResult;
using launcher::SshBackend;
using launcher::SshLimits;

class LinesLog final : public io::Log {
 public:
  void line(io::Level, std::string_view text) override { lines.emplace_back(text); }
  [[nodiscard]] std::string all() const { return fmt::format("{}", fmt::join(lines, "\n")); }
  std::vector<std::string> lines;
};

/// A loop, a backend on it, and plain calls for tests.
struct Client {
  explicit Client(io::SshOptions options, std::vector<std::string> bundle = {},
                  SshLimits limits = {})
      : backend(context.get_executor(), std::move(options), std::move(bundle), log, limits) {}

  /// Runs the loop until the coroutine is done.
  template <class T>
  T wait(io::awaitable<T> work) {
    std::optional<T> value;
    io::TaskGroup group(context.get_executor());
    auto keep = [](io::awaitable<T> w, std::optional<T>& into) -> io::awaitable<void> {
      T result = co_await std::move(w);
      into.emplace(std::move(result));
    };
    group.spawn(keep(std::move(work), value));
    finish(group);
    return std::move(*value);
  }
  /// Runs the loop until the group is idle.
  void finish(io::TaskGroup& group) {
    const auto end = std::chrono::steady_clock::now() + 50s;
    bool late = false;
    while (!group.idle()) {
      context.restart();
      context.run_one_for(100ms);
      if (late || std::chrono::steady_clock::now() < end) continue;
      late = true;
      group.cancel();
    }
    if (late) throw std::runtime_error("a test's coroutines did not end");
  }
  Result<CommandResult> run(const Host& host, std::string command, std::string input = {}) {
    return wait(launcher::run_command(*backend.exec(host), host, std::move(command), input, 30s));
  }

  io::asio::io_context context{1};
  LinesLog log;
  SshBackend backend;
};

/// The stream's bytes to its end.
io::awaitable<Result<std::string>> read_all(io::ByteStream& stream);
/// At least `size` bytes, fewer only at the stream's end.
io::awaitable<Result<std::string>> read_some(io::ByteStream& stream, std::size_t size);
/// Bytes of every value, the same each time.
[[nodiscard]] std::string noise(std::size_t size);
[[nodiscard]] bool contains(const std::string& text, const std::string& part);
[[nodiscard]] std::size_t count(const std::string& text, const std::string& part);
/// A stand-in for dtagent: prints its arguments, then echoes.
[[nodiscard]] std::vector<std::string> fake_bundle(const Sshd& sshd);

}  // namespace dt::test
