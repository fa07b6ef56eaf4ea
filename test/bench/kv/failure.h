/// Errors in dtbench are exceptions: its processes can only print one and end.
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "core/base/result.h"

namespace dt::bench {

struct Failure : std::runtime_error {
  template <class... Args>
  explicit Failure(fmt::format_string<Args...> text, Args&&... args)
      : std::runtime_error(fmt::format(text, std::forward<Args>(args)...)) {}
  explicit Failure(const Error& error) : std::runtime_error(error.message) {}
};

/// The result's value; throws its error.
template <class T, class E>
T must(tl::expected<T, E> result) {
  if (!result) throw Failure("{}", result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// Calls step(); its error gets the place in front.
template <class Step>
auto at(const std::string& place, Step step) {
  try {
    return step();
  } catch (const std::exception& error) {
    throw Failure("{}: {}", place, error.what());
  }
}

}  // namespace dt::bench
