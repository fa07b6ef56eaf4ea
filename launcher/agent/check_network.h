/// Connections between hosts for dtlaunch --check. Each call blocks, for bounded times. Any thread.
#pragma once

#include "core/preflight/preflight_messages.h"

namespace dt::launcher {

/// Threads that end with the process serve whoever connects.
[[nodiscard]] preflight::Listening listen_for_check(const preflight::AskListen& question);
[[nodiscard]] preflight::Dialled dial_for_check(const preflight::AskDial& question);
[[nodiscard]] preflight::Measured measure_for_check(const preflight::AskMeasure& question);

}  // namespace dt::launcher
