#include "kvstore/link/gmac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>

#include "core/base/result.h"
#include "kvstore/compute/kernels/kernels.h"

namespace dt::kv {

namespace {

/// An update of OpenSSL's takes an int.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

void must_do(int result) { DT_CHECK(result == 1, "AES-128-GCM is not available in this OpenSSL"); }

const unsigned char* bytes_of(const Gmac::Key& key) {
  return reinterpret_cast<const unsigned char*>(key.data());
}

}  // namespace

Gmac::Way Gmac::best_way() {
#if defined(__x86_64__)
  const bool has_all = kernels().level == SimdLevel::kAvx512 && __builtin_cpu_supports("aes") &&
                       __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("vpclmulqdq");
  if (has_all) return Way::kAvx512;
#endif
  return Way::kOpenSsl;
}

void Gmac::Free::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }
void Gmac::Wipe::operator()(GmacState* state) const {
  OPENSSL_cleanse(state, sizeof *state);
  delete state;
}

Gmac::Gmac(const Key& key, Way way) {
#if defined(__x86_64__)
  if (way == Way::kAvx512) {
    own_.reset(new GmacState);
    kGmacAvx512.set_key(*own_, key.data());
    return;
  }
#endif
  DT_CHECK(way == Way::kOpenSsl, "a way of this machine");
  openssl_.reset(EVP_CIPHER_CTX_new());
  must_do(openssl_ != nullptr);
  must_do(EVP_EncryptInit_ex(openssl_.get(), EVP_aes_128_gcm(), nullptr, bytes_of(key), nullptr));
}

void Gmac::begin(const Nonce& nonce) {
#if defined(__x86_64__)
  if (own_) return kGmacAvx512.begin(*own_, nonce.data());
#endif
  must_do(EVP_EncryptInit_ex2(openssl_.get(), nullptr, nullptr, nonce.data(), nullptr));
}

void Gmac::add(const void* bytes, std::size_t size) {
#if defined(__x86_64__)
  if (own_) return kGmacAvx512.add(*own_, bytes, size);
#endif
  const auto* from = static_cast<const unsigned char*>(bytes);
  while (size > 0) {
    const std::size_t now = std::min(size, kMostAtOnce);
    int none = 0;
    must_do(EVP_EncryptUpdate(openssl_.get(), nullptr, &none, from, static_cast<int>(now)));
    from += now;
    size -= now;
  }
}

Gmac::Tag Gmac::finish() {
  Tag tag;
#if defined(__x86_64__)
  if (own_) {
    kGmacAvx512.finish(*own_, tag.data());
    return tag;
  }
#endif
  int none = 0;
  must_do(EVP_EncryptFinal_ex(openssl_.get(), nullptr, &none));
  std::array<OSSL_PARAM, 2> wanted = {
      OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, tag.data(), tag.size()),
      OSSL_PARAM_construct_end()};
  must_do(EVP_CIPHER_CTX_get_params(openssl_.get(), wanted.data()));
  return tag;
}

}  // namespace dt::kv
