/// Shared by the supervisor's tests: a temporary folder, a loop, waits with a deadline.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "io/asio.h"
#include "io/task_group.h"
#include "supervisor/volume/volume_client.h"
#include "test/support/catch.h"

namespace dt::test {

namespace fs = std::filesystem;

class TempDir {
 public:
  TempDir() {
    std::string name = (fs::temp_directory_path() / "dt_supervisor_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

struct Loop {
  io::asio::io_context context{1};
  io::TaskGroup group{context.get_executor()};

  /// Runs handlers until `done` is true, at most for `limit`; false if it did not become true.
  bool until(const std::function<bool()>& done,
             std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      context.restart();
      context.run_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  /// Runs a coroutine to its end and gives its result.
  template <class T>
  T wait(io::awaitable<T> work) {
    std::optional<T> result;
    auto run = [&]() -> io::awaitable<void> {
      T value = co_await std::move(work);
      result.emplace(std::move(value));
    };
    group.spawn(run());
    REQUIRE(until([&] { return result.has_value(); }));
    return std::move(*result);
  }

  /// For the end of a test: every task must have ended.
  bool finished() {
    return until([&] { return group.idle(); });
  }
};

/// A loop with a volume client, whose helper is the real program.
struct VolumeLoop : Loop {
  explicit VolumeLoop(supervisor::VolumeClient::Options options = {})
      : volume(context.get_executor(), with_helper(std::move(options))) {
    group.spawn(volume.run());
  }
  ~VolumeLoop() {
    volume.stop();
    // On the loop: asio hands a cancellation from elsewhere over, maybe to a task that has ended.
    io::asio::post(context, [this] { group.cancel(); });
    finished();
  }
  static supervisor::VolumeClient::Options with_helper(supervisor::VolumeClient::Options options) {
    options.helper = {DT_SUPERVISOR_PROGRAM, "--volume-helper"};
    return options;
  }
  supervisor::VolumeClient volume;
};

}  // namespace dt::test
