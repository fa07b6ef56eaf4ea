#pragma once

#include <chrono>
#include <thread>

namespace dt::test {

using namespace std::chrono_literals;

/// Waits for a condition with a deadline; false: it did not come true.
template <class Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = 20s) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

}  // namespace dt::test
