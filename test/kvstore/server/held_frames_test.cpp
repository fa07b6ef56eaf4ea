#include "kvstore/server/held_frames.h"

#include <rapidcheck.h>

#include <algorithm>
#include <vector>

#include "test/support/catch.h"

using namespace dt;
using namespace dt::kv;

namespace {

Time at(std::uint32_t second) { return Time(std::chrono::seconds(second)); }

HeldFrames::Frame frame_of(std::uint64_t request, std::uint32_t worker, std::uint32_t generation,
                           std::uint32_t deadline, std::size_t bytes) {
  HeldFrames::Frame frame{at(deadline), {}, Payload(bytes), {}};
  frame.header.request = request;
  frame.header.worker = WorkerId(worker);
  frame.header.generation = Generation(generation);
  return frame;
}

}  // namespace

TEST_CASE("held frames: in any order of events each comes out once, and the bytes are those held",
          "[held-frames][property]") {
  struct Model {
    std::uint64_t request;
    std::uint32_t worker, generation, deadline;
    std::size_t bytes;
  };
  const bool holds = rc::check("bytes are the sum of what is held", [](std::vector<std::uint16_t>
                                                                           script) {
    HeldFrames held(1 << 20);
    std::vector<Model> model;
    const auto takes = [&](const std::vector<HeldFrames::Frame>& taken, const auto& is_due) {
      std::vector<std::uint64_t> got;
      for (const auto& frame : taken) got.push_back(frame.header.request);
      std::vector<std::uint64_t> wanted;
      for (const auto& one : model)
        if (is_due(one)) wanted.push_back(one.request);
      RC_ASSERT(got == wanted);  // in the order of arrival
      std::erase_if(model, is_due);
    };
    for (std::size_t i = 0; i < script.size(); ++i) {
      const std::uint32_t value = script[i] / 8U % 8U;
      switch (script[i] % 8U) {
        case 0:
          takes(held.take(Generation(value)),
                [&](const Model& m) { return m.generation <= value; });
          break;
        case 1:
          takes(held.expire(at(value)), [&](const Model& m) { return m.deadline <= value; });
          break;
        case 2:
          held.disconnect(WorkerId(value));
          std::erase_if(model, [&](const Model& m) { return m.worker == value; });
          break;
        default: {
          const Model m{i, value, script[i] / 64U % 8U, script[i] / 512U % 8U, script[i] / 4096U};
          held.hold(frame_of(m.request, m.worker, m.generation, m.deadline, m.bytes));
          model.push_back(m);
        }
      }
      std::size_t sum = 0;
      for (const auto& one : model) sum += sizeof(HeldFrames::Frame) + one.bytes;
      RC_ASSERT(held.bytes() == sum);
    }
    takes(held.take(Generation(8)), [](const Model&) { return true; });
    RC_ASSERT(held.bytes() == 0U);
  });
  CHECK(holds);
}

TEST_CASE("held frames: there is room until their bytes reach the limit, and again afterwards",
          "[held-frames]") {
  HeldFrames held(1000);
  CHECK(held.has_room(1000));
  CHECK_FALSE(held.has_room(1001));
  held.hold(frame_of(1, 0, 2, 9, 600));
  CHECK(held.has_room(1000 - held.bytes()));
  CHECK_FALSE(held.has_room(1001 - held.bytes()));
  CHECK(held.take(Generation(1)).empty());
  CHECK(held.take(Generation(2)).size() == 1);
  CHECK(held.has_room(1000));
}
