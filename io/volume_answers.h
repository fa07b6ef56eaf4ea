/// Whether a shared volume's server is there, before a program with nothing else to do uses it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>

#include "core/base/result.h"
#include "core/base/time.h"
#include "io/fd.h"

namespace dt::io {

inline constexpr Duration kVolumePatience = std::chrono::seconds(20);

/// Asks the file system of one path, which need not exist, as often as is wanted. A process of its
/// own asks, since nothing ends a call on a volume whose server is away, neither the thread nor the
/// process that made it; it ends when the volume answers. There is one at most: while it hangs, the
/// next question waits for it. For programs with one thread: it forks.
class VolumeQuestion {
 public:
  /// `place` names the path in errors.
  VolumeQuestion(std::string path, std::string place)
      : path_(std::move(path)), place_(std::move(place)) {}
  ~VolumeQuestion();
  VolumeQuestion(const VolumeQuestion&) = delete;
  VolumeQuestion& operator=(const VolumeQuestion&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Waits until the process has hung for `limit`: then kTimeout.
  [[nodiscard]] Result<void> answers(Duration limit = kVolumePatience);

 private:
  /// Whether the process has ended, or does before it has hung for `limit`; then there is none.
  bool ends_within(Duration limit);

  std::string path_;
  std::string place_;
  pid_t child_ = -1;
  Fd process_;
  std::chrono::steady_clock::time_point asked_;
};

/// The same, once.
[[nodiscard]] inline Result<void> volume_answers(std::string path, std::string place,
                                                 Duration limit = kVolumePatience) {
  return VolumeQuestion(std::move(path), std::move(place)).answers(limit);
}

}  // namespace dt::io
