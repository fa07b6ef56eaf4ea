/// Warns once per key if the compression's threshold is too small for it.
#pragma once

#include <set>
#include <string>

#include "io/log.h"
#include "kvstore/compute/compression.h"

namespace dt::kv {

/// One thread.
class ThresholdWarnings {
 public:
  /// `log` outlives this.
  explicit ThresholdWarnings(io::Log& log) : log_(log) {}
  /// Call it after each gradient of the key was encoded.
  void look_at(GradientEncoder& encoder, const Compression& how, const std::string& key) {
    const double times = encoder.outgrown();
    if (times == 0 || !said_.insert(key).second) return;
    log_.warn(
        "threshold {} is too small for {}: the residual is {:.0f} times the gradient; take a "
        "larger threshold",
        how.threshold, key, times);
  }

 private:
  io::Log& log_;
  std::set<std::string> said_;
};

}  // namespace dt::kv
