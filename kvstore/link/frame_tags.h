/// Tags of frames: who has not the key cannot make, change, repeat, move or remove a frame unseen.
///
/// A tag is an AES-128-GMAC under the key of the connection's direction. Its nonce has the frame's
/// number on the connection, from 0, and the part of the frame: 0 the header, 1 the payload. So the
/// tag holds for one place in one stream alone, and a nonce is never used twice under a key.
///
///     nonce = u32 part | u64 number (little-endian)
///
/// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvstore/link/gmac.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

using FrameKey = Gmac::Key;
using Tag = Gmac::Tag;
static_assert(sizeof(Tag) == data::kTagBytes);

/// The keys of a connection's two directions.
struct FrameKeys {
  FrameKey to_server{};
  FrameKey to_worker{};
};

/// The tags of one direction, in the frames' order: header(), then, if the frame has a payload,
/// add() for its bytes as they come and payload().
class FrameTags {
 public:
  explicit FrameTags(const FrameKey& key) : gmac_(key) {}

  /// The tag of the next frame's header.
  [[nodiscard]] Tag header(const void* bytes);
  /// More of that frame's payload.
  void add(const void* bytes, std::size_t size);
  /// The tag of that frame's payload.
  [[nodiscard]] Tag payload();

 private:
  Gmac gmac_;
  std::uint64_t next_ = 0;      ///< Number of the next frame.
  bool is_in_payload_ = false;  ///< add() has begun the present frame's payload.
};

/// Takes a time that does not depend on where they differ.
[[nodiscard]] bool same_tag(const Tag& tag, const void* bytes);

}  // namespace dt::kv
