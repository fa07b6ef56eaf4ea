#include "kvstore/worker/links/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
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

namespace {

const LoopId kHere{0, 1};

/// Adds a memory that kHere maps.
void grow(Staging& staging, std::uint32_t number, std::size_t size) {
  auto memory = some_memory(number, size);
  memory.shared_with = {kHere};
  staging.add(std::move(memory));
}

/// Pages of the memory that are resident.
std::size_t resident(const ClientMemory& memory) {
  const auto bytes = memory.memory->bytes();
  std::vector<unsigned char> pages(bytes.size() / 4096);
  REQUIRE(::mincore(bytes.data(), bytes.size(), pages.data()) == 0);
  return static_cast<std::size_t>(std::count_if(
      pages.begin(), pages.end(), [](unsigned char page) { return (page & 1U) != 0; }));
}

}  // namespace

TEST_CASE("staging: however the chunks come, there are few memories and places are apart",
          "[client_memory]") {
  constexpr std::size_t kChunk = 100'001;
  constexpr std::size_t kChunks = 5'000;
  Staging staging;
  std::uint32_t added = 0;
  std::set<std::pair<std::byte*, std::byte*>> places;
  for (std::size_t i = 0; i < kChunks; ++i) {
    auto place = staging.take(kChunk, kHere);
    if (!place.at) {
      grow(staging, added++, staging.to_add(kChunk));
      place = staging.take(kChunk, kHere);
    }
    REQUIRE(place.at);
    const auto* memory = staging.all().at(place.memory);
    CHECK(place.at == memory->begin() + place.offset);
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

TEST_CASE("staging: what is given back is handed out again, in one piece", "[client_memory]") {
  Staging staging;
  grow(staging, 0, 1 << 20);
  CHECK_FALSE(staging.take(64, LoopId{1, 0}).at);  // a server that does not map it
  std::vector<MemoryPlace> places;
  std::mt19937 random(1);
  const auto take = [&] { places.push_back(staging.take(1 << 16, kHere)); };
  while (places.size() < 16) take();
  CHECK_FALSE(staging.take(1, kHere).at);
  for (int round = 0; round < 200; ++round) {
    std::shuffle(places.begin(), places.end(), random);
    const auto kept = static_cast<std::ptrdiff_t>(random() % places.size());
    std::for_each(places.begin() + kept, places.end(), [&](auto& one) { staging.give_back(one); });
    places.resize(static_cast<std::size_t>(kept));
    while (places.size() < 16) take();
    std::set<std::uint64_t> offsets;
    for (const auto& place : places) offsets.insert(place.offset);
    REQUIRE(offsets.size() == 16);
  }
  for (const auto& place : places) staging.give_back(place);
  const auto whole = staging.take(1 << 20, kHere);
  CHECK(whole.at == staging.all().front()->begin());
  MemoryPlace stranger = whole;
  stranger.memory = 7;
  staging.give_back(stranger);
  CHECK_FALSE(staging.take(1, kHere).at);
}

TEST_CASE("staging: pages go back when no place had them for an epoch", "[client_memory]") {
  Staging staging;
  grow(staging, 0, 64 << 12);
  const ClientMemory& memory = *staging.all().front();
  const auto use = [&](std::size_t pages) {
    const auto place = staging.take(pages << 12, kHere);
    std::memset(place.at, 1, pages << 12);
    return place;
  };
  const auto few = use(10);
  const auto more = use(30);
  staging.give_back(more);
  (void)staging.trim();
  CHECK(resident(memory) == 40);  // it was used in the epoch that ends
  staging.give_back(use(20));
  (void)staging.trim();
  CHECK(resident(memory) == 40);  // and in the one before
  (void)staging.trim();
  CHECK(resident(memory) == 30);
  (void)staging.trim();
  CHECK(resident(memory) == 10);
  CHECK(std::to_integer<int>(few.at[10 * 4096 - 1]) == 1);
  staging.give_back(few);
  for (int epoch = 0; epoch < 3; ++epoch) (void)staging.trim();
  CHECK(resident(memory) == 0);
}

TEST_CASE("staging: pages that a server's device relies on stay, until the memory goes as a whole",
          "[client_memory]") {
  Staging staging;
  grow(staging, 0, 64 << 12);
  ClientMemory& memory = *staging.all().front();
  memory.is_pinned_there = true;
  std::memset(memory.begin(), 1, 40 << 12);
  staging.give_back(staging.take(10 << 12, kHere));
  CHECK(staging.trim().empty());
  CHECK(staging.trim().empty());
  CHECK(resident(memory) == 40);
  CHECK(staging.bytes() == 64 << 12);
  const auto unused = staging.trim();
  REQUIRE(unused.size() == 1);
  CHECK(resident(unused.front()) == 40);
  CHECK(staging.empty());
}

TEST_CASE("shared places: in place where the server can compute there, else in staging",
          "[client_memory]") {
  auto memory = some_memory(3, 4096);
  memory.shared_with = {kHere};
  Staging staging;
  grow(staging, 9, 1 << 20);
  ChunkState chunk;
  chunk.place.owner = kHere;
  chunk.is_shared = true;
  const auto places_of = [&](std::byte* from, const ClientMemory* lies_in) {
    Request request;
    request.chunk = &chunk;
    request.header.dtype = data::Dtype::kFloat64;
    request.from = from;
    if (use_shared_memory(request, lies_in, nullptr, {}))
      use_staging(request, staging.take(800, kHere));
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
  const auto staged = places_of(elsewhere, nullptr);
  CHECK(staged.in == 9);
  CHECK(staged.in_offset == 832);  // behind the place of the case before
  CHECK(staged.out == data::SharedPlaces::kNowhere);
  chunk.place.owner = {0, 0};  // a loop that does not know the memory
  CHECK(places_of(memory.begin() + 16, &memory).in == 9);
}
