#include "kvstore/protocol/messages.h"

#include <bit>
#include <cstring>

namespace dt::data {

namespace {

bool is_type(Type type) {
  switch (type) {
    case Type::kRegister:
    case Type::kInit:
    case Type::kPush:
    case Type::kPushPull:
    case Type::kPull:
    case Type::kFinish:
    case Type::kBarrier:
    case Type::kSetOptimizer:
    case Type::kSync:
    case Type::kBeat:
    case Type::kShare:
    case Type::kUnshare:
    case Type::kDone:
    case Type::kValue:
    case Type::kFailed:
    case Type::kNeedValues:
      return true;
  }
  return false;
}

}  // namespace

std::string name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "float32";
    case Dtype::kFloat64:
      return "float64";
    case Dtype::kFloat16:
      return "float16";
    case Dtype::kBfloat16:
      return "bfloat16";
    case Dtype::kInt64:
      return "int64";
  }
  return fmt::format("dtype {}", static_cast<int>(dtype));
}

std::array<char, kHeaderBytes> encode(const Header& header) {
  std::array<char, kHeaderBytes> bytes;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(bytes.data(), &header, bytes.size());
  } else {
    const std::string body = wire::body_of(header);
    DT_CHECK(body.size() == bytes.size(), "kHeaderBytes is not the size of a header");
    std::memcpy(bytes.data(), body.data(), bytes.size());
  }
  return bytes;
}

Result<Header> decode(std::string_view bytes) {
  Header header;
  if (bytes.size() != kHeaderBytes) return fail(ErrorKind::kProtocol, "not a data frame");
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&header, bytes.data(), bytes.size());
  } else {
    wire::Reader reader(bytes);
    reader.get(header);
  }
  if (header.magic != kMagic) return fail(ErrorKind::kProtocol, "not a data frame");
  if (header.payload > kMaxPayload)
    return fail(ErrorKind::kProtocol, "a data frame of {} bytes (at most {} are allowed)",
                header.payload, kMaxPayload);
  if (!is_type(header.type) || element_bytes(header.dtype) == 0 || header.reduce > Reduce::kMean ||
      codec_of(header) > Codec::kOneBit)
    return fail(ErrorKind::kProtocol, "a data frame with an unknown type");
  return header;
}

// Both ends of a shared memory are on one machine: its own byte order will do.
std::array<char, kSharedPlacesBytes> encode(const SharedPlaces& places) {
  return std::bit_cast<std::array<char, kSharedPlacesBytes>>(places);
}

SharedPlaces decode_places(const std::array<char, kSharedPlacesBytes>& bytes) {
  return std::bit_cast<SharedPlaces>(bytes);
}

}  // namespace dt::data
