/// Warnings that concern many hosts alike: each is logged once.
#pragma once

#include <set>
#include <string>

#include "io/log.h"

namespace dt::launcher {

class OnceLog {
 public:
  explicit OnceLog(io::Log& log) : log_(&log) {}
  void warn(const std::string& text) {
    if (warned_.insert(text).second) log_->warn("{}", text);
  }

 private:
  io::Log* log_;
  std::set<std::string> warned_;
};

}  // namespace dt::launcher
