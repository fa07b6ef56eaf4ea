#include "kvstore/worker/links/memory.h"

#include <cstring>
#include <set>

#include "kvstore/worker/chunk.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::kv;

namespace {

ClientMemory some_memory(std::uint32_t number, std::size_t size) {
  auto made = SharedMemory::create(size, false);
  REQUIRE(made);
  ClientMemory memory;
  memory.memory = std::move(*made);
  memory.number = number;
  return memory;
}

}  // namespace

TEST_CASE("memories: an array is found in the one that holds all of it", "[client_memory]") {
  ClientMemories memories;
  std::vector<std::byte*> begins;
  for (std::uint32_t i = 0; i < 20; ++i) {
    auto memory = some_memory(i, 4096);
    begins.push_back(memory.begin());
    memories.add(std::move(memory));
  }
  for (std::uint32_t i = 0; i < 20; ++i) {
    const auto* found = memories.holding(begins[i] + 100, 3996);
    REQUIRE(found);
    CHECK(found->number == i);
    CHECK(found->offset_of(begins[i] + 100) == 100);
    CHECK_FALSE(memories.holding(begins[i] + 100, 3997));
    CHECK_FALSE(memories.beginning_at(begins[i] + 1));
  }
  CHECK_FALSE(memories.holding(&memories, 1));
  CHECK(memories.take(begins[7]).number == 7);
  CHECK_FALSE(memories.holding(begins[7], 1));
  CHECK_FALSE(memories.beginning_at(begins[7]));
  CHECK(memories.holding(begins[8], 4096));
}

TEST_CASE("staging: however the chunks come, there are few memories and places are apart",
          "[client_memory]") {
  constexpr std::size_t kChunk = 100'001;
  constexpr std::size_t kChunks = 5'000;
  Staging staging;
  std::uint32_t added = 0;
  std::set<std::pair<std::byte*, std::byte*>> places;
  for (std::size_t i = 0; i < kChunks; ++i) {
    if (const auto size = staging.to_add(Staging::rounded(kChunk)))
      staging.add(some_memory(added++, size));
    const auto place = staging.take(kChunk);
    CHECK(place.memory == staging.latest()->number);
    CHECK(place.at == staging.latest()->begin() + place.offset);
    CHECK(place.offset % 64 == 0);
    places.emplace(place.at, place.at + kChunk);
  }
  CHECK(added < 12);
  REQUIRE(places.size() == kChunks);
  std::byte* end = nullptr;
  for (const auto& [from, to] : places) {
    CHECK(from >= end);
    end = to;
  }
}

TEST_CASE("shared places: in place where the server can compute there, else in the staging",
          "[client_memory]") {
  const LoopId here{0, 1};
  auto memory = some_memory(3, 4096);
  memory.shared_with = {here};
  Staging staging;
  staging.add(some_memory(9, 1 << 20));
  ChunkState chunk;
  chunk.place.owner = here;
  chunk.staging = staging.take(800);
  const auto places_of = [&](std::byte* from, const ClientMemory* lies_in) {
    Request request;
    request.chunk = &chunk;
    request.header.dtype = data::Dtype::kFloat64;
    request.from = from;
    use_shared_memory(request, lies_in, nullptr);
    CHECK((request.header.flags & data::kShared) != 0);
    // A request that is copied to the staging keeps its origin.
    CHECK((request.staging != nullptr) == (request.from != nullptr));
    return request.places;
  };
  const auto in_place = places_of(memory.begin() + 16, &memory);
  CHECK(in_place.in == 3);
  CHECK(in_place.in_offset == 16);
  CHECK(in_place.out == data::SharedPlaces::kNowhere);
  CHECK(places_of(memory.begin() + 12, &memory).in == 9);  // half of a double
  std::byte elsewhere[8];
  CHECK(places_of(elsewhere, nullptr).in == 9);
  chunk.place.owner = {0, 0};  // a loop that does not know the memory
  CHECK(places_of(memory.begin() + 16, &memory).in == 9);
}
