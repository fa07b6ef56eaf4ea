/// Memory at places and copies between them, on a host without a device.
#include "kvstore/compute/cuda/buffer.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "test/support/catch.h"

using namespace dt::kv::cuda;

namespace {
constexpr Place kPinned = {Place::Kind::kPinned, 0};
constexpr Place kFirstDevice = {Place::Kind::kDevice, 0};
}  // namespace

TEST_CASE("cuda: a place says what it is", "[cuda]") {
  CHECK(to_string(Place{}) == "host");
  CHECK(to_string(kPinned) == "pinned");
  CHECK(to_string({Place::Kind::kDevice, 3}) == "cuda:3");
  CHECK(kFirstDevice != Place{Place::Kind::kDevice, 1});
}

TEST_CASE("cuda: memory of the host is aligned, and copied without a device", "[cuda]") {
  std::vector<unsigned char> bytes(1001);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  Buffer to;
  Buffer from;
  REQUIRE(to.allocate({}, bytes.size()).ok());
  REQUIRE(from.allocate({}, bytes.size()).ok());
  CHECK(reinterpret_cast<std::uintptr_t>(to.area().data) % 64 == 0);
  std::copy(bytes.begin(), bytes.end(), static_cast<unsigned char*>(from.area().data));
  Transfer transfer;
  REQUIRE(transfer.start(to.area(), from.area(), nullptr).ok());
  CHECK(transfer.make_wait(nullptr).ok());
  CHECK(transfer.wait().ok());
  const auto* got = static_cast<const unsigned char*>(to.area().data);
  CHECK(std::vector<unsigned char>(got, got + bytes.size()) == bytes);
}

TEST_CASE("cuda: areas of different sizes are not copied, and nothing is copied at once",
          "[cuda]") {
  Buffer small;
  Buffer large;
  REQUIRE(small.allocate({}, 8).ok());
  REQUIRE(large.allocate({}, 16).ok());
  Transfer transfer;
  CHECK_FALSE(transfer.start(large.area(), small.area(), nullptr).ok());
  Buffer none;
  REQUIRE(none.allocate(kPinned, 0).ok());
  CHECK(none.area().data == nullptr);
  CHECK(transfer.start(none.area(), Buffer().area(), nullptr).ok());
  CHECK(transfer.wait().ok());
}

TEST_CASE("cuda: without a device other memory is refused with a sentence, and nothing is lost",
          "[cuda]") {
  const std::string why = why_no_device();
  if (why.empty()) {
    WARN("SKIPPED: there is a device");
    return;
  }
  CHECK(why.find("no CUDA device") == 0);
  Buffer buffer;
  REQUIRE(buffer.allocate({}, 64).ok());
  void* const before = buffer.area().data;
  for (const Place place : {kPinned, kFirstDevice}) {
    const Status status = buffer.allocate(place, 64);
    REQUIRE_FALSE(status.ok());
    CHECK_FALSE(std::string(status.error).empty());
    CHECK(buffer.area().data == before);
    CHECK(buffer.area().place == Place{});
  }
  Transfer transfer;
  Area elsewhere = buffer.area();
  elsewhere.place = kPinned;
  CHECK_FALSE(transfer.start(elsewhere, buffer.area(), nullptr).ok());
  CHECK(transfer.wait().ok());
}
