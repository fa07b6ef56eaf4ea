/// For targets whose program logs refused input.
#pragma once

#include <string_view>

#include "io/log.h"

namespace dt::test {

class QuietLog final : public io::Log {
 public:
  void line(io::Level, std::string_view) override {}
};

}  // namespace dt::test
