// What a server refuses of a worker that describes a device's memory: other memory than it names,
// and places outside of it.

#include <functional>
#include <memory>
#include <string>

#include "kvstore/link/ipc_memory.h"
#include "kvstore/worker/links/memory.h"
#include "test/kvstore/cluster.h"
#include "test/kvstore/stranger.h"
#include "test/kvstore/worker/device/device_tensors.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace {

/// A member that sends arbitrary descriptions of a device's memory.
class Liar : public Stranger {
 public:
  explicit Liar(Cluster& cluster, WorkerId worker = WorkerId(0))
      : Stranger(cluster.server().port()), worker_(worker), generation_(cluster.generation()) {
    authenticate(worker);
  }
  data::Header create(std::uint32_t key, data::Dtype dtype, std::uint64_t elements) {
    data::Header header = about(data::Type::kInit, key, dtype);
    header.samples = elements;
    return ask(header, std::string(elements * data::element_bytes(dtype), '\0'));
  }
  data::Header share(const data::ShareMemory& memory) {
    return ask(about(data::Type::kShare, 0, data::Dtype::kFloat32), wire::body_of(memory));
  }
  data::Header push(std::uint32_t key, data::Dtype dtype, const data::SharedPlaces& places,
                    data::Type type = data::Type::kPushPull) {
    tell_push(key, dtype, places, type);
    const auto answer = data::decode(hear(data::kHeaderBytes));
    REQUIRE(answer);
    return *answer;
  }
  void tell_push(std::uint32_t key, data::Dtype dtype, const data::SharedPlaces& places,
                 data::Type type = data::Type::kPushPull) {
    data::Header header = about(type, key, dtype);
    header.flags = data::kShared;
    tell(header, payload_of(places));
  }

 private:
  data::Header about(data::Type type, std::uint32_t key, data::Dtype dtype) const {
    data::Header header;
    header.type = type;
    header.worker = worker_;
    header.key = KeyId(key);
    header.dtype = dtype;
    header.generation = generation_;
    header.round = Round(1);
    header.samples = 1;
    return header;
  }
  WorkerId worker_;
  Generation generation_;
};

std::unique_ptr<kv::SharedDeviceMemory> some_device_memory(std::size_t size) {
  auto made = kv::SharedDeviceMemory::create(0, size);
  REQUIRE(made);
  return std::move(*made);
}

}  // namespace

TEST_CASE("device sharing: places are free again for new servers, which are to be told",
          "[device][ipc]") {
  const Fresh machine;
  kv::Staging places(1);
  const LoopId server{0, 1};
  const auto add = [&](std::uint32_t number, std::size_t size) {
    kv::ClientMemory memory;
    memory.on_device = some_device_memory(size);
    memory.number = number;
    memory.shared_with = {{0, 0}, server};
    places.add(std::move(memory));
  };
  add(1, 256);
  const auto first = places.take(100, server);  // rounded to 128
  const auto second = places.take(128, server);
  CHECK(first.offset == 0);
  CHECK(second.offset == 128);
  CHECK(second.at == first.at + 128);
  CHECK_FALSE(places.take(1, server).at);
  CHECK(places.to_add(1) == std::size_t{4} << 20);
  CHECK(places.bytes() == 256);
  places.forget_servers();
  CHECK(places.all().front()->shared_with.empty());
  CHECK_FALSE(places.take(1, server).at);
  places.give_back(first);  // of the servers of before
  CHECK(places.take(256, std::nullopt).at == first.at);
}

TEST_CASE("device sharing: memory goes back when no place had it for an epoch", "[device][ipc]") {
  const Fresh machine;
  const auto before = emulated::alive().device_memories;
  kv::Staging places(1);
  kv::ClientMemory memory;
  memory.on_device = some_device_memory(256);
  places.add(std::move(memory));
  const auto place = places.take(100, std::nullopt);
  for (int epoch = 0; epoch < 3; ++epoch) CHECK(places.trim().empty());
  places.give_back(place);
  CHECK(places.trim().empty());  // it was used in the epoch that ends
  CHECK(places.trim().empty());  // and in the one before
  CHECK(places.trim().size() == 1);
  CHECK(places.empty());
  CHECK(places.bytes() == 0);
  CHECK(emulated::alive().device_memories == before);
}

TEST_CASE("device sharing: memory that is not what was spoken of is refused",
          "[device][ipc][security]") {
  const Fresh machine;
  const bool computes_on_device = GENERATE(false, true);
  Cluster cluster(1, 1, true, false, false, [&](kv::ServerOptions& options) {
    if (computes_on_device) options.device = 0;
  });
  const auto memory = some_device_memory(8192);
  const auto told = memory->describe(3);
  Liar member(cluster);
  REQUIRE(told.token.size() == data::kNonceBytes);
  const auto changed = [&](const std::function<void(data::ShareMemory&)>& change) {
    auto other = told;
    change(other);
    return member.share(other).type;
  };
  const auto kFailed = data::Type::kFailed;
  CHECK(changed([](auto& m) { m.token[31] ^= 1; }) == kFailed);
  CHECK(changed([](auto& m) { m.token.clear(); }) == kFailed);
  CHECK(changed([](auto& m) { m.handle[8] ^= 1; }) == kFailed);
  CHECK(changed([](auto& m) { m.handle.pop_back(); }) == kFailed);
  CHECK(changed([](auto& m) { m.size = 8193; }) == kFailed);
  CHECK(changed([](auto& m) { m.size = 0; }) == kFailed);
  CHECK(changed([](auto& m) { m.size = ~std::uint64_t{0} - 100; }) == kFailed);
  CHECK(emulated::alive().foreign_memories == 0);
  const auto answer = member.share(told);
  CHECK(answer.type == (computes_on_device ? data::Type::kDone : kFailed));
  CHECK(emulated::alive().foreign_memories == (computes_on_device ? 1 : 0));
  // The answer for the host's memory shows which kind of server it is.
  const auto shared = kv::SharedMemory::create(1, true);
  REQUIRE(shared);
  const auto flags = member.share((*shared)->describe(4)).flags;
  CHECK(((flags & data::kOnDevice) != 0) == computes_on_device);
  member.hang_up();
  CHECK(member.is_closed());
  CHECK(emulated::alive().foreign_memories == 0);
}

TEST_CASE("device sharing: places outside of it cost their sender's connection alone",
          "[device][ipc][security]") {
  const Fresh machine;
  Cluster cluster(1, 1, true, false, false, [](kv::ServerOptions& options) { options.device = 0; });
  const auto memory = some_device_memory(8192);
  const auto nowhere = data::SharedPlaces::kNowhere;
  constexpr std::uint64_t kElements = 1000;
  struct Bad {
    data::SharedPlaces places;
    std::uint32_t key = 0;
    data::Dtype dtype = data::Dtype::kFloat32;
  };
  const std::vector<Bad> bad = {
      {{3, nowhere, 8192, 0}},
      {{3, nowhere, 4208, 0}},  // across its end
      {{3, 3, 0, ~std::uint64_t{0} - 15}},
      {{3, nowhere, 8, 0}},  // askew
      {{3, 3, 0, 4}},
      {{4, nowhere, 0, 0}},
      {{3, nowhere, 0, 0}, 1, data::Dtype::kInt64},
  };
  for (const auto& [places, key, dtype] : bad) {
    Liar member(cluster);
    REQUIRE(member.create(0, data::Dtype::kFloat32, kElements).type == data::Type::kDone);
    REQUIRE(member.create(1, data::Dtype::kInt64, kElements).type == data::Type::kDone);
    REQUIRE(member.share(memory->describe(3)).type == data::Type::kDone);
    member.tell_push(key, dtype, places);
    CHECK(member.is_closed());
    CHECK(emulated::alive().foreign_memories == 0);
  }
  CHECK(cluster.server().counters().dropped_connections == bad.size());
  Liar good(cluster);
  REQUIRE(good.create(0, data::Dtype::kFloat32, kElements).type == data::Type::kDone);
  REQUIRE(good.share(memory->describe(3)).type == data::Type::kDone);
  std::vector<float> ones(kElements, 1.0F);
  std::memcpy(memory->begin() + 192, ones.data(), 4000);
  const auto answer = good.push(0, data::Dtype::kFloat32, {3, 3, 192, 4192});
  CHECK(answer.type == data::Type::kValue);
  CHECK(std::memcmp(memory->begin() + 4192, ones.data(), 4000) == 0);
  good.hang_up();
  CHECK(good.is_closed());
}
