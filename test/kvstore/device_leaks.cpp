/// Ends the program badly when its tests left memory, streams or events of the device behind.
#include <cstdio>
#include <cstdlib>

#include "test/support/emulated_device/emulated_device.h"

namespace {

struct DeviceLeaks {
  DeviceLeaks() { static_cast<void>(dt::test::emulated::alive()); }  // it ends after this
  ~DeviceLeaks() {
    const auto left = dt::test::emulated::leaks();
    if (left.empty()) return;
    std::fprintf(stderr, "left on the device: %s\n", left.c_str());
    std::abort();
  }
} device_leaks;

}  // namespace
