/// AES-128-GMAC by AES-NI and VPCLMULQDQ, for Gmac alone. Its file is compiled for these
/// instructions and shares no inline function with others.
///
/// GHASH is computed as RFC 8452, appendix A, relates it to POLYVAL: no bits are reversed, only
/// bytes, and the key is multiplied by x once. 32 blocks are multiplied by descending powers of the
/// key, added and reduced together; products are Karatsuba's.
#pragma once

#include <cstddef>

namespace dt::kv {

struct alignas(64) GmacState {
  static constexpr std::size_t kBlock = 16;
  static constexpr std::size_t kAtOnce = 32;  ///< Blocks.

  /// H^32 ... H^1, then zeros, which a group that is not full reads.
  unsigned char powers[(kAtOnce + 4) * kBlock];
  /// The sum of each power's halves.
  unsigned char sums[(kAtOnce + 4) * kBlock];
  unsigned char rounds[11 * kBlock];  ///< AES round keys.
  unsigned char sum[kBlock];          ///< GHASH of the whole blocks so far.
  unsigned char nonce[kBlock];
  unsigned char rest[kBlock];  ///< The block that is not whole yet.
  unsigned long long size;     ///< Bytes so far.
};

/// The table is absent where the compiler does not make x86-64 code.
struct GmacAvx512 {
  void (*set_key)(GmacState& state, const char* key);
  void (*begin)(GmacState& state, const unsigned char* nonce);
  void (*add)(GmacState& state, const void* bytes, std::size_t size);
  void (*finish)(GmacState& state, char* tag);
};
extern const GmacAvx512 kGmacAvx512;

}  // namespace dt::kv
