/// Messages between VolumeClient and its helper process, one request at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/wire.h"

namespace dt::supervisor {

enum class VolumeOp : std::uint8_t {
  kRead,      ///< `number`: the most bytes; more is an error.
  kExists,    ///
  kList,      ///
  kRoom,      ///< Free bytes on the folder's file system.
  kWatch,     ///< A byte on the helper's stdout when the file `path2` of this folder changes.
  kWriteNew,  ///< Unless it exists; `number`: mode. The first that writes.
  kReplace,   ///< Temporary file, fsync, rename; `number`: mode.
  kRewrite,   ///< The same of a user's file, which stays his: see VolumeClient::rewrite.
  /// `number`: the size before, or kAnySize; `sync`; `limit`: from half of it on the file becomes
  /// io::kOlder, and the next append makes another one; 0: none.
  kAppend,
  kTruncate,  ///< `number`: the size.
  kMakeDirs,  ///
  kRename,    ///< To `path2`.
  kRemove,    ///< A file or an empty folder; absent is fine.
  kLink,      ///< A symbolic link to `path2` replaces `path`; `yes`: it was made.
};

/// kAppend wherever the file ends.
inline constexpr std::uint64_t kAnySize = ~std::uint64_t{0};

/// VolumeReply::error when the file is not as the request expects it.
inline constexpr std::int32_t kConflict = -1;

struct VolumeRequest {
  static constexpr std::uint16_t kType = 1;
  VolumeOp op = VolumeOp::kRead;
  std::string path = {};
  std::string path2 = {};
  std::string bytes = {};
  std::uint64_t number = 0;
  bool sync = false;
  std::uint64_t limit = 0;
  std::string lock_file = {};  ///< If given: kConflict, and nothing is done, unless this file has
  std::string lock = {};       ///< this text.
};

struct VolumeReply {
  static constexpr std::uint16_t kType = 2;
  std::int32_t error = 0;  ///< errno; `text` names the operation and the file.
  std::string text = {};
  bool yes = false;  ///< kRead, kExists: it is there. kWriteNew, kLink: it was made.
  std::string bytes = {};
  std::vector<std::string> names = {};
  std::uint64_t number = 0;  ///< kRoom
};

}  // namespace dt::supervisor
