/// What a host answers to dtlaunch --check: what it finds out about itself (check_facts.cpp), and
/// its connections to others (check_network.cpp). Each call blocks; one about a volume or a GPU may
/// never return, one about connections takes a bounded time. Any thread. What is asked for by `id`
/// is the caller's to repeat.
#pragma once

#include "core/preflight/preflight_messages.h"

namespace dt::launcher {

[[nodiscard]] preflight::MachineSaid find_machine(const preflight::AskMachine& question);
[[nodiscard]] preflight::CommandSaid find_command(const preflight::AskCommand& question);
/// Makes one file, in a folder that the master removes.
[[nodiscard]] preflight::VolumeSaid find_volume(const preflight::AskVolume& question);
[[nodiscard]] preflight::GpusSaid find_gpus(const preflight::AskGpus& question);

/// Threads that end with the process serve whoever connects.
[[nodiscard]] preflight::Listening listen_for_check(const preflight::AskListen& question);
[[nodiscard]] preflight::Dialled dial_for_check(const preflight::AskDial& question);
[[nodiscard]] preflight::Measured measure_for_check(const preflight::AskMeasure& question);

}  // namespace dt::launcher
