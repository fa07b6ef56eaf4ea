#include "core/protocol/device_choice.h"

#include "test/support/catch.h"

using namespace dt;

TEST_CASE("device choice: what --device takes", "[core]") {
  CHECK(parse_device("cpu")->kind == DeviceChoice::Kind::kCpu);
  CHECK(parse_device("auto")->kind == DeviceChoice::Kind::kAuto);
  CHECK(parse_device("cuda:3")->number == 3);
  CHECK(parse_device("auto:2")->kind == DeviceChoice::Kind::kAuto);
  CHECK(parse_device("auto:2")->number == 2);
  for (const auto* text : {"", "cuda", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999999999",
                           "gpu", "cpu:0", "auto:", "auto:-1"}) {
    const auto refused = parse_device(text);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message.find("cpu, auto, cuda:0") != std::string::npos);
  }
}

TEST_CASE("device choice: a device of a process is one of its list, by the host's number",
          "[core]") {
  CHECK(gpu_of_host("3,1", 0) == 3);
  CHECK(gpu_of_host("3,1", 1) == 1);
  CHECK(gpu_of_host("0,2-5", 3) == 4);
  CHECK_FALSE(gpu_of_host("3,1", 2));
  CHECK_FALSE(gpu_of_host("GPU-1a", 0));
  CHECK_FALSE(gpu_of_host("", 0));
}
