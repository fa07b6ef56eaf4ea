#include "kvstore/link/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>

namespace dt::kv {

namespace {

std::string hmac(std::string_view secret, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
  unsigned int size = 0;
  const auto* done =
      HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(), &size);
  DT_CHECK(done != nullptr, "HMAC-SHA256 is not available in this OpenSSL");
  return {reinterpret_cast<const char*>(mac.data()), size};
}

std::string text_of(std::string_view role, const Transcript& t) {
  wire::Writer w;
  w.put(std::string_view("dtlaunch data plane"));
  w.put(data::kVersion);
  w.put(role);
  w.put(t);
  return w.take();
}

std::string text_of(std::string_view role, const Transcript& t, const data::ServerProof& answer) {
  wire::Writer w;
  w.put(text_of(role, t));
  w.put(answer.loops);
  w.put(answer.has_tags);
  return w.take();
}

}  // namespace

std::string fresh_nonce() {
  std::array<unsigned char, data::kNonceBytes> bytes{};
  DT_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1,
           "the system has no random numbers");
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string client_mac(std::string_view secret, const Transcript& transcript) {
  return hmac(secret, text_of("client", transcript));
}

std::string server_mac(std::string_view secret, const Transcript& transcript,
                       const data::ServerProof& answer) {
  return hmac(secret, text_of("server", transcript, answer));
}

FrameKeys frame_keys(std::string_view secret, const Transcript& transcript,
                     const data::ServerProof& answer) {
  const auto key = [&](std::string_view direction) {
    FrameKey bytes;
    hmac(secret, text_of(direction, transcript, answer)).copy(bytes.data(), bytes.size());
    return bytes;
  };
  return {.to_server = key("frames to the server"), .to_worker = key("frames to the worker")};
}

bool same_mac(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace dt::kv
