/// The journal's file, on the master's local disk: one writer, every record synced.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/journal.h"
#include "core/result.h"
#include "io/fd.h"

namespace dt::supervisor {

/// Blocking calls: commits wait for this disk by design. One thread.
class Store {
 public:
  /// Opens or makes (0600) the file, locks it against a second supervisor of the job (kDenied),
  /// replays it into `records` and cuts a torn tail. A damaged journal is kInvalid, untouched.
  [[nodiscard]] static Result<Store> open(const std::string& path,
                                          std::vector<wire::Frame>& records);

  /// On success the record is on the disk. After a failed write (disk full) the file is as before
  /// and the next append may succeed; after a failed sync nothing is known and every later append
  /// fails.
  [[nodiscard]] Result<void> append(std::uint16_t type, std::string_view body);
  template <class Message>
  [[nodiscard]] Result<void> append(const Message& message) {
    return append(Message::kType, wire::body_of(message));
  }

  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  Store(std::string path, io::Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Result<void> cut(std::uint64_t size);
  Result<void> write_synced(std::string_view bytes);

  std::string path_;
  io::Fd fd_;
  std::uint64_t size_ = 0;
  bool broken_ = false;
};

}  // namespace dt::supervisor
