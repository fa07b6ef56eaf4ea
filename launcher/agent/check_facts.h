/// What a host finds out about itself for dtlaunch --check. Each call blocks, and one about a
/// volume or a GPU may never return. Any thread. What is asked for by `id` is the caller's to
/// repeat.
#pragma once

#include "core/preflight/preflight_messages.h"

namespace dt::launcher {

[[nodiscard]] preflight::MachineSaid find_machine(const preflight::AskMachine& question);
[[nodiscard]] preflight::CommandSaid find_command(const preflight::AskCommand& question);
/// Makes one file, in a folder that the master removes.
[[nodiscard]] preflight::VolumeSaid find_volume(const preflight::AskVolume& question);
[[nodiscard]] preflight::GpusSaid find_gpus(const preflight::AskGpus& question);

}  // namespace dt::launcher
