/// The data plane: the messages between a worker's library and a kvstore server on an authenticated
/// connection (one per worker and server loop).
///
///     frame = Header (kHeaderBytes, little-endian) | payload of header.payload bytes
///
/// Where the handshake agreed on authenticated frames, each part is followed by its tag
/// (kvstore/link/frame_tags.h), so that no byte of a header is believed before it is checked:
///
///     frame = Header | tag | payload | tag       (no second tag without a payload)
///
/// Every request is answered once with the same `request` number, in any order. Requests may arrive
/// twice: a client resends unanswered ones after a connection broke.
///
///     request                payload              answer
///     kRegister              RegisterKeys         kDone, KeyTable (when all of them exist)
///     kInit                  values or nothing    kDone (round=the open one);
///                                                 kNeedValues: send again, with values
///     kPush                  gradient             kDone, when the round is complete
///     kPushPull              gradient             kValue, of exactly that round
///     kPull                                       kValue
///     kFinish (round=phase, step=next epoch)      kDone
///     kBarrier (round)                            kDone, when every contributor is there
///     kSetOptimizer          text                 kDone; kCheckOnly: nothing is set yet
///     kSetOptimizer, kCheckOnly                   kDone, the present optimizer's text
///     kPullState                                  kValue (step=updates), of the last round
///     kInitState (step=updates)  values           kDone; ignored if the chunk was updated
///     kSync                                       kDone, SyncState
///     kShare                 ShareMemory          kDone: kShared frames may name it from now on
///     kUnshare (chunk=number)                     kDone: unmapped
///     kBeat                                       kBeat: a sign of life from both ends
/// or kFailed with a Failure.
///
/// A worker connects to a loop when the loop owns a chunk of a key that the worker knows; before,
/// it sends that loop's kFinish, kSetOptimizer and kSync to the server's first loop, which passes
/// them on (key=kForLoop, chunk=the loop). The answers come back the same way.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/id.h"
#include "core/base/result.h"
#include "core/base/wire.h"

namespace dt::data {

inline constexpr std::uint16_t kVersion = 9;
inline constexpr std::uint32_t kMagic = 0x31565444;  // "DTV1"

enum class Type : std::uint8_t {
  kRegister = 1,
  kInit = 2,
  kPush = 3,
  kPushPull = 4,
  kPull = 5,
  kFinish = 6,
  kBarrier = 7,
  kSetOptimizer = 8,
  kSync = 9,
  kBeat = 10,
  kShare = 11,
  kUnshare = 12,
  kPullState = 13,
  kInitState = 14,
  kDone = 64,
  kValue = 65,
  kFailed = 66,
  kNeedValues = 67,
};

/// The numbers of dtkv_dtype.
enum class Dtype : std::uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kBfloat16 = 3,
  kInt64 = 4,
};

struct DtypeFacts {
  const char* name;
  std::uint32_t bytes;  ///< Of an element.
};
/// By the dtype's number.
inline constexpr std::array<DtypeFacts, 5> kDtypes = {
    {{"float32", 4}, {"float64", 8}, {"float16", 2}, {"bfloat16", 2}, {"int64", 8}}};

/// "float32"; "dtype 9" for a number that is none.
[[nodiscard]] std::string name_of(Dtype dtype);

/// Bytes of an element; 0 for a number that is no dtype.
[[nodiscard]] constexpr std::uint32_t element_bytes(Dtype dtype) {
  const auto number = static_cast<std::size_t>(dtype);
  return number < kDtypes.size() ? kDtypes[number].bytes : 0;
}

/// The numbers of dtkv_reduce.
enum class Reduce : std::uint8_t { kAuto = 0, kSum = 1, kMean = 2 };

/// Why a request or a call failed. The numbers are those of dtkv.h, DTKV_*, which defines what each
/// means to a caller. Servers send those marked "Sent".
enum class Code : std::uint8_t {
  kInvalid = 1,  ///< Sent.
  kUnavailable = 2,
  kTimeout = 3,  ///< Sent.
  kFenced = 4,   ///< Sent.
  kLeave = 5,
  kMismatch = 6,  ///< Sent.
  kInternal = 7,
  kNonfinite = 8,  ///< Sent: the round went on as if the gradient had no samples.
  kRollback = 9,
};

enum Flags : std::uint8_t {
  kAuxiliary = 1,    ///< kInit: mean without optimizer.
  kTransient = 2,    ///< kInit: not in checkpoints.
  kAsync = 2,        ///< kPush, kPushPull: applied on arrival; `round` counts the worker's pushes.
  kStepsOnly = 1,    ///< kFinish: parameters are finished; auxiliary keys are still to come.
  kAtBoundary = 2,   ///< kFinish: the sender is at the boundary, and creates no key before it.
  kSecondState = 1,  ///< kPullState, kInitState: the optimizer's second state, else the first.
  kCheckOnly = 4,    ///< kSetOptimizer; without a text: asks for the present one.
  kShared = 8,       ///< kPush, kPushPull, kPull: the payload is SharedPlaces. kValue: it is there.
  kCodec = 112,      ///< kPush, kPushPull: the sender's Codec; see codec_of().
  kOnDevice = 128,   ///< kDone of a kShare: the server computes on a device; share that memory too.
};

/// The compression of a float32 parameter's gradient (kvstore/compute/compression.h). A gradient in
/// shared memory is not compressed, whatever the sender's setting.
enum class Codec : std::uint8_t { kNone = 0, kTwoBit = 1, kFp16 = 2, kBf16 = 3 };  // 4 was 1bit

struct Header {
  std::uint32_t magic = kMagic;
  std::uint32_t payload = 0;  ///< Bytes after the header.
  Type type{};
  Dtype dtype{};
  Reduce reduce{};
  std::uint8_t flags = 0;
  std::int32_t priority = 0;
  KeyId key{};
  std::uint32_t chunk = 0;
  WorkerId worker{};
  float learning_rate = 0;
  std::uint64_t request = 0;
  Generation generation{};
  Round round{};
  /// kInit: the chunk's first element. kInitState and the answer of kPullState: updates so far.
  std::uint64_t step = 0;
  std::uint64_t samples = 0;  ///< kInit: the chunk's elements.
};

/// Header::key of a request for the loop that Header::chunk names, and of its answer.
inline constexpr KeyId kForLoop{0xffffffff};

[[nodiscard]] constexpr bool contributes(Type type) {
  return type == Type::kPush || type == Type::kPushPull;
}
/// Whether a worker's requests of the type take turns at a chunk; the others are sent at once.
[[nodiscard]] constexpr bool takes_turns(Type type) {
  return contributes(type) || type == Type::kPull;
}
/// Whether requests of the type may be passed from loop to loop.
[[nodiscard]] constexpr bool may_be_for_loop(Type type) {
  return type == Type::kFinish || type == Type::kSetOptimizer || type == Type::kSync;
}

[[nodiscard]] constexpr Codec codec_of(const Header& header) {
  return static_cast<Codec>((header.flags & kCodec) >> 4);
}
constexpr void set_codec(Header& header, Codec codec) {
  header.flags =
      static_cast<std::uint8_t>((header.flags & ~kCodec) | (static_cast<unsigned>(codec) << 4));
}

inline constexpr std::size_t kHeaderBytes = 72;
inline constexpr std::size_t kTagBytes = 16;
/// A header in memory is a header on the wire: there is nothing to convert for each of a thousand
/// small frames.
static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) == kHeaderBytes &&
              std::endian::native == std::endian::little);
/// Limit of every frame's payload, in bytes.
inline constexpr std::uint32_t kMaxPayload = std::uint32_t{64} << 20;

[[nodiscard]] std::array<char, kHeaderBytes> encode(const Header& header);
/// `bytes` are kHeaderBytes; kProtocol if magic, length or an enum's number is invalid.
[[nodiscard]] Result<Header> decode(std::string_view bytes);

struct KeySpec {
  std::string name;
  std::uint64_t count = 0;  ///< Elements.
  Dtype dtype{};
  std::uint8_t flags = 0;
  friend bool operator==(const KeySpec&, const KeySpec&) = default;
};

struct RegisterKeys {
  static constexpr std::uint16_t kType = 210;
  std::uint32_t known = 0;  ///< Number of keys in the sender's table; the answer has the rest.
  std::vector<KeySpec> keys;
};

struct KeyTable {
  static constexpr std::uint16_t kType = 211;
  std::uint32_t from = 0;  ///< KeyId of the first entry.
  std::vector<KeySpec> keys;
};

struct ChunkRound {
  KeyId key;
  std::uint32_t chunk = 0;
  Round open;
};

/// A loop's generation, phase and rounds, which a worker adopts when it connects and at each
/// release.
struct SyncState {
  static constexpr std::uint16_t kType = 212;
  Generation generation;
  std::uint64_t phase = 0;  ///< Number of epochs every contributor has finished.
  Round barrier;            ///< The open one.
  std::vector<ChunkRound> chunks;
};

/// Memory of the sender that the receiver, on the same host, is to map.
struct ShareMemory {
  static constexpr std::uint16_t kType = 214;
  std::uint32_t number = 0;  ///< The sender's number, new for each memory.
  std::uint32_t pid = 0;     ///< pid and fd: for host memory.
  std::uint32_t fd = 0;
  std::uint64_t size = 0;
  std::string token{};   ///< Content right after the end of host memory, or before device memory.
  std::string handle{};  ///< CUDA IPC handle of device memory; empty: it is host memory.
};
inline constexpr std::uint32_t kMaxShareMemory = 256;  ///< Limit in bytes of a ShareMemory.

/// The places in shared memories of a chunk's gradient (in) and of its value (out).
struct SharedPlaces {
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  std::uint32_t in = kNowhere;  ///< ShareMemory::number
  std::uint32_t out = kNowhere;
  std::uint64_t in_offset = 0;
  std::uint64_t out_offset = 0;
};
/// Travels as it is in memory: both ends of a shared memory are on one machine.
static_assert(std::is_trivially_copyable_v<SharedPlaces> && sizeof(SharedPlaces) == 24);

struct Failure {
  static constexpr std::uint16_t kType = 213;
  Code code{};
  std::string message;
};

// ---------------------------------------------------------------- handshake, before anything else
// Small wire frames (u32 size | u16 type | fields). Each side proves that it knows the secret by a
// HMAC-SHA256 over the other's fresh nonce, its own nonce, its role's name, and both ends' ids.

inline constexpr std::size_t kMaxHandshakeFrame = 256;
inline constexpr std::size_t kNonceBytes = 32;

/// server -> client, at once.
struct Challenge {
  static constexpr std::uint16_t kType = 200;
  std::uint16_t version = kVersion;
  std::string nonce;
};

/// client -> server
struct ClientProof {
  static constexpr std::uint16_t kType = 201;
  ServerId server;  ///< The server that the client means to reach.
  WorkerId worker;  ///< The client.
  std::uint32_t loop = 0;
  bool wants_tags = false;  ///< The client requires authenticated frames.
  /// The client ended its last connection to this loop because of what came on it: a wrong tag or a
  /// malformed frame. The server counts it.
  bool was_deceived = false;
  std::string nonce;
  std::string mac;
};

/// server -> client; from then on the connection belongs to the loop and carries frames.
struct ServerProof {
  static constexpr std::uint16_t kType = 202;
  std::uint32_t loops = 0;
  bool has_tags = false;  ///< Frames are authenticated, since one end or both require it.
  std::string mac;
};

}  // namespace dt::data
