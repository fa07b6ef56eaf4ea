/// $DT_TEST_DEVICE: the tests run once with servers on the CPU and once with them on a device,
/// which is the emulated one (test/support/emulated_device), so that every wait that is missing is
/// seen.
#pragma once

#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/base/result.h"
#include "core/protocol/device_choice.h"
#include "kvstore/compute/device_engine.h"

namespace dt::test {

/// As --device has it; none: the CPU.
inline std::optional<int> device_under_test() {
  const char* name = std::getenv("DT_TEST_DEVICE");
  const auto choice = parse_device(name ? std::string_view(name) : "cpu");
  DT_CHECK(choice, "DT_TEST_DEVICE is none of cpu, cuda:0");
  if (choice->kind == DeviceChoice::Kind::kCpu) return std::nullopt;
  return choice->number;
}

}  // namespace dt::test
