#include "core/protocol/gpu_health.h"

#include "test/support/catch.h"

using namespace dt;

namespace {

std::vector<GpuReport> gpus(std::uint32_t count) {
  std::vector<GpuReport> all(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    all[i].index = i;
    all[i].uuid = fmt::format("GPU-{}a-{}", i % 2, i);
  }
  return all;
}

std::vector<std::uint32_t> seen(const char* variable) { return visible_gpus(variable, gpus(4)); }

using Numbers = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("gpus: CUDA_VISIBLE_DEVICES says which GPUs are a worker's", "[gpus]") {
  CHECK(visible_gpus(std::nullopt, gpus(3)) == Numbers{0, 1, 2});
  CHECK(seen("2") == Numbers{2});
  CHECK(seen("3,0") == Numbers{3, 0});
  CHECK(seen(" 1 , 2 ") == Numbers{1, 2});
  CHECK(seen("GPU-0a-2,GPU-1a-1") == Numbers{2, 1});
  // None of them: empty, a word that names no GPU, or the usual -1.
  for (const char* none : {"", "-1", "x", "4", "NoDevFiles", ","}) CHECK(seen(none).empty());
  // The first entry that is none ends the list, and so does one that was there already.
  CHECK(seen("1,-1,2") == Numbers{1});
  CHECK(seen("1,,2") == Numbers{1});
  CHECK(seen("0,0,1") == Numbers{0});
  // A beginning that is not unique names none.
  CHECK(seen("GPU-0").empty());
  CHECK(seen("99999999999999999999").empty());
}

TEST_CASE("gpus: what counts as trouble, the worst first", "[gpus]") {
  GpuReport gpu;
  gpu.busy_percent = 100;
  gpu.ecc_recent = 0;
  gpu.ecc_ever = 5;  // of former days, and dealt with
  gpu.remapped_rows = 3;
  gpu.held_back = 0x4 | 0x1;  // a power limit that a user has set; idle
  CHECK(troubles_of(gpu).empty());

  gpu.held_back |= 0x20;
  gpu.xid_errors = 2;
  gpu.last_xid = 79;
  gpu.remapping_pending = true;
  gpu.ecc_recent = 1;
  gpu.unanswered = "GPU is lost";
  CHECK(troubles_of(gpu) ==
        std::vector<std::string>{"GPU is lost",
                                 "1 uncorrected ECC errors since the driver was loaded",
                                 "memory waits to be taken out of use: reset the GPU or restart "
                                 "the host",
                                 "Xid 79: the GPU has fallen off the bus, 2 errors",
                                 "its clocks are held back: too hot (driver)"});
  GpuReport other;
  other.xid_errors = 1;
  other.last_xid = 1;
  CHECK(troubles_of(other) == std::vector<std::string>{"Xid 1"});
}
