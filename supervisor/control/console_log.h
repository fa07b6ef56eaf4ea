/// The supervisor's own lines: to the consoles that follow, and to supervisor.log.
#pragma once

#include <string_view>

#include "io/log.h"
#include "supervisor/control/control_server.h"

namespace dt::supervisor {

/// One thread. `quiet` keeps INFO from the consoles.
class ConsoleLog final : public io::Log {
 public:
  ConsoleLog(ControlServer& control, io::Log& own, bool quiet)
      : control_(control), own_(own), quiet_(quiet) {}
  void line(io::Level level, std::string_view text) override {
    own_.line(level, text);
    if (quiet_ && level == io::Level::kInfo) return;
    control_.console(io::console_line(level, text) + "\n", true);
  }

 private:
  ControlServer& control_;
  io::Log& own_;
  bool quiet_;
};

}  // namespace dt::supervisor
