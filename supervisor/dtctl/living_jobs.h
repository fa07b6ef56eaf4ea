/// Which jobs of this user have a supervisor on this machine.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace dt::supervisor {

/// Whether a supervisor of the job listens, now or within `patience`: dtlaunch starts one that has
/// died again. Does not wait where no supervisor was killed.
[[nodiscard]] bool has_supervisor(const std::string& job, std::chrono::milliseconds patience);

/// All that have one. Waits for `patience` at most, for all of them together.
[[nodiscard]] std::vector<std::string> living_jobs(std::chrono::milliseconds patience);

/// Where its supervisor's socket is, if the job began on this machine.
[[nodiscard]] std::string supervisor_socket(const std::string& job);

}  // namespace dt::supervisor
