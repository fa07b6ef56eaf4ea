/// The journal's file, on the master's local disk: one writer, every record synced.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/files/journal.h"
#include "io/fd.h"

namespace dt::supervisor {

/// Blocking calls: commits wait for this disk by design. One thread.
class JournalFile {
 public:
  /// Opens or makes (0600) the file, locks it against a second supervisor of the job (kDenied),
  /// replays it into `records` and cuts a torn tail. A damaged journal is kInvalid, untouched.
  [[nodiscard]] static Result<JournalFile> open(const std::string& path,
                                                std::vector<wire::Frame>& records);

  /// On success the record is on the disk. If the disk is full (is_full()) the file is unchanged
  /// and the next append may succeed; after another failed sync its state is unknown and every
  /// later append fails.
  [[nodiscard]] Result<void> append(std::uint16_t type, std::string_view body);

  /// Puts `bytes`, a whole journal, in this one's place. Wherever that is interrupted, the file is
  /// the one or the other. After an error the old one is still in use, but if the rename cannot be
  /// synced: then every later append fails.
  [[nodiscard]] Result<void> replace(std::string_view bytes);

  /// The last append failed because the disk, a quota or a limit leaves no room.
  [[nodiscard]] bool is_full() const { return is_full_; }
  /// Why less than kAhead could be kept ahead the last time; empty: enough is, or the file system
  /// cannot keep any.
  [[nodiscard]] const std::string& shortage() const { return shortage_; }
  /// Reserves up to kAhead bytes of the disk for later records, unless half of it is reserved.
  void keep_ahead();
  static constexpr std::uint64_t kAhead = std::uint64_t{1} << 20;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] std::string_view header() const { return header_; }

 private:
  JournalFile(std::string path, io::Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  /// Opens the file and locks it; kDenied: another supervisor has it.
  [[nodiscard]] static Result<io::Fd> open_locked(const std::string& path);
  Result<void> cut(std::uint64_t size);
  Result<void> write_synced(std::string_view bytes);
  /// A write or a sync failed with this errno: the file is made as it was, if that is possible.
  tl::unexpected<Error> failed(int number, std::string_view doing, bool is_sync);

  std::string path_;
  io::Fd fd_;
  std::string_view header_ = journal::kHeader;
  std::uint64_t size_ = 0;
  std::uint64_t kept_until_ = 0;  ///< The disk has room for the file up to this size.
  std::string shortage_;
  bool is_full_ = false;
  bool broken_ = false;
};

}  // namespace dt::supervisor
