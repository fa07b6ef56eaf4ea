/// $DT_TEST_DEVICE: the tests run once with servers on the CPU and once with servers on the
/// emulated device (test/support/emulated_device), which exposes every missing wait.
#pragma once

#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/base/result.h"
#include "core/protocol/device_choice.h"
#include "kvstore/compute/device_engine.h"

namespace dt::test {

/// The device as in --device; nullopt: the CPU.
inline std::optional<int> device_under_test() {
  const char* name = std::getenv("DT_TEST_DEVICE");
  const auto choice = parse_device(name ? std::string_view(name) : "cpu");
  DT_CHECK(choice, "DT_TEST_DEVICE is none of cpu, cuda:0");
  if (choice->kind == DeviceChoice::Kind::kCpu) return std::nullopt;
  return choice->number;
}

}  // namespace dt::test
