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

TEST_CASE("gpus: each worker has its own, dealt by slots, and they begin again", "[gpus]") {
  const auto dealt = [](std::uint32_t count, GpuShare share, std::uint32_t slot,
                        const std::optional<std::string>& variable = {}) {
    std::string out;
    for (const auto number : visible_gpus(
             deal_gpus(gpus(count), visible_gpus(variable, gpus(count)), share, slot), gpus(count)))
      out += fmt::format("{} ", number);
    return out;
  };
  CHECK(deal_gpus(gpus(4), {0, 1, 2}, {1, 1}, 1) == "GPU-1a-1");
  struct Row {
    std::uint32_t gpus;
    GpuShare share;
    std::vector<std::string> by_slot;
  };
  for (const Row& row : std::vector<Row>{
           {4, {0, 4}, {"0 ", "1 ", "2 ", "3 ", "0 ", "1 "}},
           {8, {0, 1}, {"0 1 2 3 4 5 6 7 ", "0 1 2 3 4 5 6 7 "}},
           {8, {0, 3}, {"0 1 ", "2 3 ", "4 5 ", "6 7 ", "0 1 "}},
           {2, {0, 5}, {"0 ", "1 ", "0 ", "1 ", "0 "}},
           {4, {3, 4}, {"0 1 2 ", "3 0 1 ", "2 3 0 "}},
           {2, {5, 1}, {"0 1 ", "1 0 "}},
       })
    for (std::uint32_t slot = 0; slot < row.by_slot.size(); ++slot) {
      INFO(row.gpus << " GPUs, " << row.share.per_worker << ", " << row.share.workers << ", "
                    << slot);
      CHECK(dealt(row.gpus, row.share, slot) == row.by_slot[slot]);
    }
  // A scheduler's list is what is dealt.
  CHECK(dealt(4, {0, 2}, 1, "3,1") == "1 ");
  CHECK(dealt(4, {0, 1}, 0, "GPU-1a-3") == "3 ");
  CHECK(deal_gpus(gpus(4), {}, {1, 1}, 0).empty());
  CHECK(deal_gpus({}, {}, {1, 1}, 0).empty());
  // A hosts file's list is what is dealt, in its order.
  CHECK(deal_gpus(gpus(4), {3, 1}, {0, 2}, 1) == "GPU-1a-1");
}

TEST_CASE("gpus: a hosts file's list has the host's numbers, and must be what the agent sees",
          "[gpus]") {
  const auto chosen = [](const char* list, const std::optional<std::string>& variable = {},
                         std::uint32_t count = 8) {
    const auto numbers = chosen_gpus(list, variable, gpus(count));
    return numbers ? fmt::format("{}", fmt::join(*numbers, " ")) : numbers.error().message;
  };
  CHECK(chosen("") == "0 1 2 3 4 5 6 7");
  CHECK(chosen("", "3,1") == "3 1");
  CHECK(chosen("", "nobody").empty());  // none is dealt, and status says so
  CHECK(chosen("5,0-2") == "5 0 1 2");
  // With a scheduler's list the numbers are still the host's, and not places in the list.
  CHECK(chosen("3", "3,1") == "3");
  CHECK(chosen("0", "3,1") == "gpus=0: this host has by its CUDA_VISIBLE_DEVICES only GPUs 1,3");
  CHECK(chosen("0", "") == "gpus=0: this host has by its CUDA_VISIBLE_DEVICES only GPUs none");
  CHECK(chosen("0,9") == "gpus=0,9: this host has GPUs 0-7");
  CHECK(chosen("0", {}, 0) == "gpus=0: this host's driver lists no GPU");
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
  CHECK(programs_error_of(other).empty());
  other.last_xid = 45;  // as a worker's kill brings it
  CHECK(troubles_of(other).empty());
  CHECK(programs_error_of(other) == "Xid 45: a program's work was removed, as when it is killed");
}
