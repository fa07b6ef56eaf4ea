/// The journal's copy on the shared volume, for a master that is lost with its disk. Nothing waits
/// for it, but it is always a prefix of the journal, without gaps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "supervisor/volume/mirrored_file.h"

namespace dt::supervisor {

/// One thread.
class JournalCopy final : public MirroredFile {
 public:
  /// `bytes`: the current journal, which replaces the file's content.
  JournalCopy(VolumeClient& volume, std::string path, std::string bytes)
      : MirroredFile(volume, std::move(path)), bytes_(std::move(bytes)) {}

  /// Adds bytes appended to the journal.
  void add(std::string_view bytes);
  /// The journal was replaced. Until its copy is, the file stays a prefix of the journal before.
  void replace(std::string bytes);
  /// The journal.
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  [[nodiscard]] bool is_behind() const override { return !is_whole_ || written_ < bytes_.size(); }
  io::awaitable<Result<void>> catch_up() override;

  std::string bytes_;
  std::uint64_t journals_ = 0;  ///< How often bytes_ was replaced.
  std::size_t written_ = 0;
  bool is_whole_ = false;  ///< The file is known to hold the first written_ bytes, and no others.
};

}  // namespace dt::supervisor
