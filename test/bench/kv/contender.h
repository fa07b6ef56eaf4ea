/// A contender of a measurement: a group of processes that share a Control.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/time.h"
#include "test/bench/kv/control.h"
#include "test/bench/kv/options.h"

namespace dt::bench {

/// Child processes that end with this object: killed and reaped, if they have not ended before.
class Children {
 public:
  Children() = default;
  Children(Children&&) noexcept = default;
  ~Children();

  /// Forks; the child ends after body(): an exception ends on stderr as "dtbench: NAME: ..." and
  /// makes the exit code 1. The child dies with its parent. Only while this process has one thread.
  void fork(const std::string& name, const std::function<void()>& body);
  /// Forks "NAME 0", "NAME 1" and so on; each calls body(number).
  void fork(const std::string& name, std::uint32_t count,
            const std::function<void(std::uint32_t)>& body);
  /// Runs a program.
  void run(const std::string& name, const std::vector<std::string>& argv);
  /// Throws if one has ended.
  void watch();
  /// Waits for all to end and kills those that have not after `limit`. Throws if one did not end
  /// with 0.
  void join(Duration limit);

 private:
  struct Child {
    std::string name;
    pid_t pid;
  };
  std::vector<Child> all_;
};

/// Removes its folder with the content at the end.
struct TempFolder {
  TempFolder() = default;
  TempFolder(TempFolder&& other) noexcept : path(std::exchange(other.path, {})) {}
  ~TempFolder() { remove(); }
  void remove();

  std::string path;  ///< Empty: none.
};

struct Contender {
  Contender(std::string its_name, const KvOptions& options, const TensorList& list)
      : name(std::move(its_name)), control(options.workers, list.elements) {}

  void await_ready();
  /// Returns when all workers have executed it.
  void order(const Command& command);
  /// Waits for the end of all processes; the number of wrong elements that they found.
  std::uint64_t quit();

  std::string name;
  Control control;
  TempFolder folder;
  Children children;  ///< Declared last: the children end before the rest is destroyed.
};

/// The kvstore itself.
[[nodiscard]] Contender start_store(const KvOptions& options, const TensorList& list);

}  // namespace dt::bench
