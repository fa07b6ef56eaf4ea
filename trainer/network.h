/// What Module trains. Derive it for a network of your own; only files that do so need libtorch.
#pragma once

#include <torch/nn/module.h>

namespace dt {

class Network : public torch::nn::Module {
 public:
  /// Samples (n, channels, height, width) to scores (n, classes).
  virtual torch::Tensor forward(torch::Tensor x) = 0;
};

}  // namespace dt
