#include "kvstore/link/frame_tags.h"

#include <openssl/crypto.h>

#include <cstring>
#include <utility>

#include "core/base/result.h"

namespace dt::kv {

namespace {

Gmac::Nonce nonce(std::uint32_t part, std::uint64_t number) {
  Gmac::Nonce bytes;
  static_assert(sizeof bytes == sizeof part + sizeof number);
  std::memcpy(bytes.data(), &part, sizeof part);
  std::memcpy(bytes.data() + sizeof part, &number, sizeof number);
  return bytes;
}

constexpr std::uint32_t kHeaderPart = 0;
constexpr std::uint32_t kPayloadPart = 1;

}  // namespace

Tag FrameTags::header(const void* bytes) {
  gmac_.begin(nonce(kHeaderPart, next_++));
  gmac_.add(bytes, data::kHeaderBytes);
  return gmac_.finish();
}

void FrameTags::add(const void* bytes, std::size_t size) {
  if (!std::exchange(is_in_payload_, true)) gmac_.begin(nonce(kPayloadPart, next_ - 1));
  gmac_.add(bytes, size);
}

Tag FrameTags::payload() {
  DT_CHECK(is_in_payload_, "a payload has bytes");
  is_in_payload_ = false;
  return gmac_.finish();
}

bool same_tag(const Tag& tag, const void* bytes) {
  return CRYPTO_memcmp(tag.data(), bytes, tag.size()) == 0;
}

}  // namespace dt::kv
