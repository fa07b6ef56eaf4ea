/// AES-128-GMAC (NIST SP 800-38D): a tag over bytes that come in pieces. On machines with
/// VPCLMULQDQ and AVX-512 by instructions of our own, four times as fast as OpenSSL 3.0; elsewhere
/// by OpenSSL. The tags are the same. Times depend on lengths alone.
///
/// A nonce must never be used twice under a key. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kvstore/link/gmac_avx512.h"

struct evp_cipher_ctx_st;

namespace dt::kv {

class Gmac {
 public:
  static constexpr std::size_t kTagBytes = 16;
  using Key = std::array<char, 16>;
  using Nonce = std::array<unsigned char, 12>;
  using Tag = std::array<char, kTagBytes>;
  enum class Way : std::uint8_t { kOpenSsl, kAvx512 };

  /// The fastest way on this machine; DT_SIMD=baseline and =avx2 leave OpenSSL.
  [[nodiscard]] static Way best_way();

  explicit Gmac(const Key& key, Way way = best_way());

  /// Forgets a tag that was not finished.
  void begin(const Nonce& nonce);
  void add(const void* bytes, std::size_t size);
  [[nodiscard]] Tag finish();

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  struct Wipe {
    void operator()(GmacState* state) const;
  };

  std::unique_ptr<GmacState, Wipe> own_;              ///< Null: by OpenSSL.
  std::unique_ptr<evp_cipher_ctx_st, Free> openssl_;  ///< Null: by own_.
};

}  // namespace dt::kv
