/// The learning rate of every step, as a pure function of what all workers know alike (they must
/// agree on it to the last bit).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace dt::train {

struct LrOptions {
  float rate = 0.05F;  ///< For the world the job began with.
  float factor = 1.0F;
  /// The rate is multiplied by `factor` at the beginning of each of these epochs.
  std::vector<std::uint32_t> factor_epochs{};
  /// Batch per worker: the rate follows the world size, since the whole batch does. False when the
  /// whole batch stays as it is.
  bool follows_world = true;
  /// Steps over which the rate moves to its new value when the world changed. Momentum holds the
  /// noise of the old batch size: a jump hurts (Lin et al., arXiv 1904.12043).
  std::uint32_t smooth_steps = 32;
};

/// World sizes that matter to an epoch.
struct Worlds {
  std::uint32_t initial = 1;  ///< When the job began.
  std::uint32_t last = 1;     ///< In the epoch before; the initial one for the first.
  std::uint32_t now = 1;
};

/// Step `step` (from 0) of `epoch`. The move to a new world size ends with the epoch even if that
/// has fewer than smooth_steps steps.
[[nodiscard]] float learning_rate(const LrOptions& options, std::uint32_t epoch, std::uint32_t step,
                                  const Worlds& worlds);

/// "30,60,80" as epochs, rising.
[[nodiscard]] Result<std::vector<std::uint32_t>> parse_epochs(std::string_view text);

}  // namespace dt::train
