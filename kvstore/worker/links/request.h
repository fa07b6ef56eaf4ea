/// A request from a worker's library to a server loop, and its outcome.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/control_messages.h"
#include "kvstore/compute/compression.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/store.h"

namespace dt::kv {

class ServerLink;
struct ChunkState;
struct DeviceEnds;
struct Query;

struct Request {
  data::Header header;
  const void* from = nullptr;  ///< header.payload bytes, the caller's or `keep`'s.
  void* into = nullptr;        ///< Destination of a kValue of into_bytes.
  std::size_t into_bytes = 0;
  /// Not null: becomes the larger of its value and the answer's Header::step.
  std::uint64_t* step = nullptr;
  /// kShared: sent instead of the bytes. If there is `staging`, bytes outside shared memory are
  /// copied to it before the request is sent, and from it after the answer; without `staging` all
  /// bytes are in shared memory already.
  data::SharedPlaces places{};
  void* staging = nullptr;
  /// Encodes the into_bytes at `from` into header.payload bytes just before the request is first
  /// sent; a resend has the same bytes.
  GradientEncoder* encoder = nullptr;
  Compression compression{};
  /// Null: all arrays are in host memory, and no device writes them.
  std::shared_ptr<const DeviceEnds> device{};
  Handle handle = 0;            ///< Part of this operation of the caller ...
  ChunkState* chunk = nullptr;  ///< ... and of this chunk's queue.
  std::shared_ptr<Query> query{};
  std::shared_ptr<const std::string> keep{};
};

/// A request of `type` whose payload is the text.
[[nodiscard]] inline Request request_with(data::Type type, std::string text) {
  Request request;
  request.keep = std::make_shared<const std::string>(std::move(text));
  request.from = request.keep->data();
  request.header.type = type;
  request.header.payload = static_cast<std::uint32_t>(request.keep->size());
  return request;
}

/// The key for WaitingFor.
[[nodiscard]] inline KeyId key_of(const Request& request) {
  return request.chunk ? request.header.key : WaitingFor::kNoKey;
}

/// The outcome of a request.
struct Outcome {
  std::optional<StoreError> error;
  data::Header header;
  std::string text;  ///< The answer's payload, unless it went to Request::into.
};

/// A request to one link whose answer the caller waits for.
struct Query {
  ServerLink* link = nullptr;
  bool is_answered = false;
  Outcome outcome;
};

using Queries = std::vector<std::shared_ptr<Query>>;

}  // namespace dt::kv
