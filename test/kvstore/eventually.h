/// Waits for a condition with a deadline; false if it did not become true.
#pragma once

#include <poll.h>

#include <chrono>

namespace dt::test {

using namespace std::chrono_literals;

template <class Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = 20s) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 2);
  }
  return true;
}

}  // namespace dt::test
