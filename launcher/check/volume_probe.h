/// The files by which a check finds out whether hosts and master see the same job folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "io/asio.h"
#include "io/fd.h"

namespace dt::launcher {

/// A folder in the job folder, for the time of the check. Any user may make files in it: a host's
/// user may be another one on the volume.
class VolumeProbe {
 public:
  /// With a file "master" that has `word`, locked while the check lives. Removes what checks that
  /// were killed have left there.
  [[nodiscard]] static Result<VolumeProbe> make(const std::string& job_dir, std::string word);
  VolumeProbe(VolumeProbe&& other) noexcept;
  VolumeProbe& operator=(VolumeProbe&&) = delete;
  ~VolumeProbe() { remove(); }

  /// Removes it and all in it. Idempotent.
  void remove();
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& word() const { return word_; }
  /// Waits for a host's file. An empty text; or why it is not seen after 5 s.
  [[nodiscard]] io::awaitable<std::string> wait_for(std::string name, std::string word) const;
  /// The user to whom a host's file belongs, if that is not this one.
  [[nodiscard]] std::optional<std::uint32_t> other_owner(const std::string& name) const;

 private:
  VolumeProbe(std::string path, std::string word)
      : path_(std::move(path)), word_(std::move(word)) {}
  std::string path_;  ///< Empty: removed.
  std::string word_;
  io::Fd lock_;  ///< The file "master".
};

}  // namespace dt::launcher
