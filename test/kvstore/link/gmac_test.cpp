#include "kvstore/link/gmac.h"

#include <openssl/evp.h>
#include <rapidcheck.h>

#include <memory>
#include <string>
#include <vector>

#include "kvstore/link/frame_tags.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::kv;

namespace gmac {

namespace {

std::string hex(const Gmac::Tag& tag) {
  std::string text;
  for (const char c : tag) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

/// The ways this machine has.
std::vector<Gmac::Way> ways() {
  std::vector<Gmac::Way> all = {Gmac::Way::kOpenSsl};
  if (Gmac::best_way() != Gmac::Way::kOpenSsl) all.push_back(Gmac::best_way());
  return all;
}

Gmac::Tag tag_of(Gmac& gmac, const Gmac::Nonce& nonce, std::string_view bytes,
                 std::size_t piece = ~std::size_t{0}) {
  gmac.begin(nonce);
  while (!bytes.empty()) {
    const auto now = bytes.substr(0, piece);
    gmac.add(now.data(), now.size());
    bytes.remove_prefix(now.size());
  }
  return gmac.finish();
}

}  // namespace

TEST_CASE("gmac: the tags of NIST's test vectors", "[gmac]") {
  // gcmEncryptExtIV128.rsp, Keylen = 128, IVlen = 96, PTlen = 0: AADlen = 0 and 128.
  for (const auto way : ways()) {
    const auto bytes = [](std::string_view text, auto out) {
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<typename decltype(out)::value_type>(
            std::stoi(std::string(text.substr(2 * i, 2)), nullptr, 16));
      return out;
    };
    Gmac none(bytes("cf063a34d4a9a76c2c86787d3f96db71", Gmac::Key{}), way);
    CHECK(hex(tag_of(none, bytes("113b9785971864c83b01c787", Gmac::Nonce{}), {})) ==
          "72ac8493e3a5228b5d130a69d2510e42");
    Gmac one(bytes("77be63708971c4e240d1cb79e8d77feb", Gmac::Key{}), way);
    const auto aad = bytes("7a43ec1d9c0a5a78a0b16533a6213cab", std::array<char, 16>{});
    CHECK(hex(tag_of(one, bytes("e0e00f19fed7ba0136a797f3", Gmac::Nonce{}),
                     {aad.data(), aad.size()})) == "209fcc8d3675ed938e9c7166709dd946");
  }
}

TEST_CASE("gmac: our own instructions give OpenSSL's tags, whatever the pieces", "[gmac]") {
  if (ways().size() < 2) {
    WARN("no VPCLMULQDQ with AVX-512 here: nothing to compare");
    return;
  }
  const auto random = [](auto out) {
    for (auto& byte : out) byte = *rc::gen::arbitrary<std::decay_t<decltype(byte)>>();
    return out;
  };
  const bool good = rc::check([&] {
    const auto key = random(Gmac::Key{});
    Gmac openssl(key, Gmac::Way::kOpenSsl);
    Gmac own(key, Gmac::best_way());
    for (int i = 0; i < 4; ++i) {
      const Gmac::Nonce nonce = random(Gmac::Nonce{});
      const auto size = *rc::gen::inRange<std::size_t>(0, 1500);
      std::string bytes(size, *rc::gen::arbitrary<char>());
      for (int n = 0; n < 20 && size > 0; ++n)
        bytes[*rc::gen::inRange<std::size_t>(0, size)] = *rc::gen::arbitrary<char>();
      const auto wanted = tag_of(openssl, nonce, bytes);
      RC_ASSERT(tag_of(own, nonce, bytes) == wanted);
      RC_ASSERT(tag_of(own, nonce, bytes, *rc::gen::inRange<std::size_t>(1, 700)) == wanted);
    }
  });
  CHECK(good);
  // Every length around the block and around the groups that are reduced together.
  Gmac openssl(Gmac::Key{'k'}, Gmac::Way::kOpenSsl);
  Gmac own(Gmac::Key{'k'}, Gmac::best_way());
  std::string bytes(2'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 37 + i / 256);
  std::size_t wrong = 0;
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const std::string_view part(bytes.data(), size);
    wrong += tag_of(own, Gmac::Nonce{7}, part) != tag_of(openssl, Gmac::Nonce{7}, part);
  }
  CHECK(wrong == 0);
}

TEST_CASE("frame tags: each depends on the key, the frame's number and its part", "[gmac]") {
  const std::string header(data::kHeaderBytes, 'h');
  FrameTags first(FrameKey{'a'});
  FrameTags same(FrameKey{'a'});
  FrameTags other(FrameKey{'b'});
  const Tag tag = first.header(header.data());
  CHECK(same_tag(tag, same.header(header.data()).data()));
  CHECK_FALSE(same_tag(tag, other.header(header.data()).data()));
  first.add(header.data(), header.size());
  const Tag payload = first.payload();
  CHECK_FALSE(same_tag(payload, tag.data()));
  same.add(header.data(), 10);
  same.add(header.data(), header.size() - 10);
  CHECK(same_tag(payload, same.payload().data()));
  CHECK_FALSE(same_tag(first.header(header.data()), tag.data()));
}

}  // namespace gmac
