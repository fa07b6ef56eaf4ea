/// The learning rate of every step, as a pure function of values that all workers share (they must
/// agree on the rate to the last bit).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace dt::train {

struct LrOptions {
  float rate = 0.05F;  ///< For the job's initial world size.
  float factor = 1.0F;
  /// The rate is multiplied by `factor` at the beginning of each of these epochs.
  std::vector<std::uint32_t> factor_epochs{};
  /// With a batch per worker the rate is proportional to the world size, as the whole batch is.
  /// False if the whole batch is constant.
  bool follows_world = true;
  /// Steps over which the rate moves to its new value when the world changed. Momentum holds the
  /// noise of the old batch size: a jump hurts (Lin et al., arXiv 1904.12043).
  std::uint32_t smooth_steps = 32;
};

/// The world sizes for an epoch's learning rate.
struct Worlds {
  std::uint32_t initial = 1;  ///< When the training began, which a checkpoint goes on with.
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
