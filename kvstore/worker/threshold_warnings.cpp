#include "kvstore/worker/threshold_warnings.h"

namespace dt::kv {

void ThresholdWarnings::look_at(GradientEncoder& encoder, const Compression& how,
                                const std::string& key) {
  const double times = encoder.outgrown();
  if (times == 0 || !said_.insert(key).second) return;
  log_.warn(
      "threshold {} is too small for {}: the residual is {:.0f} times the gradient; take a larger "
      "threshold",
      how.threshold, key, times);
}

}  // namespace dt::kv
