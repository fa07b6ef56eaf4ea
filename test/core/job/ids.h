/// Worker ids from numbers.
#pragma once

#include <initializer_list>
#include <vector>

#include "core/base/id.h"

namespace dt::test {

inline std::vector<WorkerId> ids(std::initializer_list<std::uint32_t> values) {
  std::vector<WorkerId> out;
  for (const auto v : values) out.emplace_back(v);
  return out;
}

}  // namespace dt::test
