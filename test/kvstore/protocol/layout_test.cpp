#include "kvstore/protocol/layout.h"

#include <algorithm>

#include "test/support/catch.h"

using namespace dt;

TEST_CASE("layout: a large array is cut into chunks that cover it once, in order", "[layout]") {
  Layout layout({1, 1, 1});
  const auto chunks = layout.add_key(1'000'003, 4);
  std::uint64_t next = 0;
  for (const auto& chunk : chunks) {
    CHECK(chunk.first == next);
    CHECK(chunk.count * 4 <= Layout::kDefaultChunkBytes);
    next += chunk.count;
  }
  CHECK(next == 1'000'003);
  CHECK(chunks.size() == 4);
}

TEST_CASE("layout: no server carries more than the mean and one chunk", "[layout]") {
  for (std::uint32_t servers : {1u, 2u, 3u, 16u}) {
    Layout layout(std::vector<std::uint32_t>(servers, 4));
    std::uint64_t total = 0;
    for (std::uint64_t i = 0; i < 161; ++i) {
      const std::uint64_t elements = i % 3 == 0 ? 512 : (i % 17) * 40'000 + 100;
      layout.add_key(elements, 4);
      total += elements * 4;
    }
    std::uint64_t fullest = 0;
    for (std::uint32_t s = 0; s < servers; ++s) fullest = std::max(fullest, layout.server_bytes(s));
    CHECK(fullest <= total / servers + Layout::kDefaultChunkBytes);
  }
}

TEST_CASE("layout: the same keys have the same places in every process", "[layout]") {
  Layout one({2, 3});
  Layout two({2, 3});
  for (std::uint64_t i = 1; i < 20; ++i)
    CHECK(one.add_key(i * 100'000, 4) == two.add_key(i * 100'000, 4));
}

TEST_CASE("layout: an empty array has one chunk, so that its rounds exist", "[layout]") {
  Layout layout({1});
  const auto chunks = layout.add_key(0, 4);
  REQUIRE(chunks.size() == 1);
  CHECK(chunks[0].count == 0);
}
