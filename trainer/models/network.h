/// The network that Module trains. Derive your own network from it; only files that do so need
/// libtorch.
#pragma once

#include <torch/nn/module.h>

#include <functional>

namespace dt::train {

class Network : public torch::nn::Module {
 public:
  /// Samples (n, channels, height, width) to scores (n, classes).
  virtual torch::Tensor forward(torch::Tensor x) = 0;

  /// True: forward calls use(part) for each part before it reads the part's parameters. Then a step
  /// begins before the new weights of later parts have arrived; else it waits for all.
  [[nodiscard]] virtual bool says_use() const { return false; }
  /// Sets the function that use() calls; empty: none. Module::fit sets it.
  void on_use(std::function<void(const torch::nn::Module&)> told) { told_ = std::move(told); }

 protected:
  /// Waits for the parameters of `part` (a ModuleHolder or shared_ptr): x = use(conv1_)(x).
  template <class Part>
  Part& use(Part& part) {
    if (told_) told_(*part);
    return part;
  }

 private:
  std::function<void(const torch::nn::Module&)> told_;
};

}  // namespace dt::train
