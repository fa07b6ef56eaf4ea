/// What a worker's library asks of a server loop, and what becomes of it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvstore/compute/compression.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/store.h"

namespace dt::kv {

class ServerLink;
struct ChunkState;
struct DeviceEnds;
struct Question;

struct Request {
  data::Header header;
  const void* from = nullptr;  ///< header.payload bytes, the caller's or `keep`'s.
  void* into = nullptr;        ///< Where a kValue of into_bytes goes.
  std::size_t into_bytes = 0;
  /// kShared: sent instead of the bytes. What lies elsewhere is copied to `staging` before it is
  /// sent, and from there when it is answered; without `staging` it is in shared memory already.
  std::array<char, data::kSharedPlacesBytes> places{};
  void* staging = nullptr;
  /// Makes header.payload bytes of the into_bytes at `from` when it is first about to be sent; sent
  /// again are the same bytes.
  GradientEncoder* encoder = nullptr;
  Compression compression;
  /// Null: it is about memory of the host that nothing else is writing.
  std::shared_ptr<const DeviceEnds> device;
  Handle handle = 0;            ///< Part of this operation of the caller ...
  ChunkState* chunk = nullptr;  ///< ... and of this chunk's queue.
  std::shared_ptr<Question> question;
  std::shared_ptr<const std::string> keep;
};

/// What became of a request.
struct Outcome {
  std::optional<StoreError> error;
  data::Header header;
  std::string text;  ///< The answer's payload, unless it went to Request::into.
};

/// Something the caller waits for, of one link.
struct Question {
  ServerLink* link = nullptr;
  bool is_answered = false;
  Outcome outcome;
};

using Questions = std::vector<std::shared_ptr<Question>>;

}  // namespace dt::kv
