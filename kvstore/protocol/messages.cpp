#include "kvstore/protocol/messages.h"

#include <cstring>

namespace dt::data {

namespace {

bool is_type(Type type) {
  return (type >= Type::kRegister && type <= Type::kInitState) ||
         (type >= Type::kDone && type <= Type::kNeedValues);
}

}  // namespace

std::string name_of(Dtype dtype) {
  const auto number = static_cast<std::size_t>(dtype);
  return number < kDtypes.size() ? kDtypes[number].name : fmt::format("dtype {}", number);
}

std::array<char, kHeaderBytes> encode(const Header& header) {
  return std::bit_cast<std::array<char, kHeaderBytes>>(header);
}

Result<Header> decode(std::string_view bytes) {
  Header header;
  if (bytes.size() != kHeaderBytes) return fail(ErrorKind::kProtocol, "not a data frame");
  std::memcpy(&header, bytes.data(), bytes.size());
  if (header.magic != kMagic) return fail(ErrorKind::kProtocol, "not a data frame");
  if (header.payload > kMaxPayload)
    return fail(ErrorKind::kProtocol, "a data frame of {} bytes (at most {} are allowed)",
                header.payload, kMaxPayload);
  if (!is_type(header.type) || element_bytes(header.dtype) == 0 || header.reduce > Reduce::kMean ||
      codec_of(header) > Codec::kBf16)
    return fail(ErrorKind::kProtocol, "a data frame with an unknown type");
  return header;
}

}  // namespace dt::data
