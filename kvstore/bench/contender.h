/// A contender of a measurement: a group of processes that share a Control.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "kvstore/bench/control.h"
#include "kvstore/bench/options.h"

namespace dt::bench {

/// Limits until a contender's processes are ready, have executed an order, and have ended.
inline constexpr Duration kStartLimit = std::chrono::seconds(120);
inline constexpr Duration kOrderLimit = std::chrono::seconds(300);
inline constexpr Duration kEndLimit = std::chrono::seconds(20);

/// Child processes that end with this object: killed and reaped, if they have not ended before.
class Children {
 public:
  Children() = default;
  Children(Children&& other) noexcept : all_(std::move(other.all_)) { other.all_.clear(); }
  Children& operator=(Children&&) = delete;
  ~Children();

  /// Forks; `body` gives the child's exit code. Its error ends on stderr as "dtbench: NAME: ...".
  /// The child dies with its parent. Only while this process has one thread.
  Result<void> fork(const std::string& name, const std::function<Result<void>()>& body);
  /// Runs a program.
  Result<void> run(const std::string& name, const std::vector<std::string>& argv);
  /// An error if one has ended.
  Result<void> watch();
  /// Waits for all to end and kills those that have not after `limit`. An error if one did not end
  /// with 0.
  Result<void> join(Duration limit);

 private:
  struct Child {
    std::string name;
    pid_t pid;
  };
  std::vector<Child> all_;
};

/// A folder; the destructor removes it with its content.
class TempFolder {
 public:
  TempFolder() = default;
  explicit TempFolder(std::string path) : path_(std::move(path)) {}
  TempFolder(TempFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TempFolder& operator=(TempFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~TempFolder();

 private:
  std::string path_;
};

struct Contender {
  std::string name;
  Control control;
  TempFolder folder;
  Children children;  ///< Declared last: the children end before the rest is destroyed.
};

/// The kvstore itself.
[[nodiscard]] Result<Contender> start_store(const KvOptions& options, const TensorList& list);

}  // namespace dt::bench
