/// The optimizer steps of kvstore/compute/cuda over arrays of other languages: a library that
/// torch_optimizers.py loads. Arrays are float32, in the memory of a device or of the host.
///
///     nvcc -t 4 $flags -shared -Xcompiler -fPIC -o liboptimizer_steps.so
///         test/bench/optimizer_steps.cpp kvstore/compute/cuda/device.cpp
///         kvstore/compute/cuda/launch_steps.cu
///
/// Functions that can fail return null or a sentence that stays valid.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvstore/compute/cuda/cuda_steps.h"
#include "kvstore/compute/cuda/launch.h"

using namespace dt::kv::cuda;

namespace {

constexpr int kHost = -1;

/// The arrays of one tensor; the script declares the same struct.
struct Arrays {
  float* values;
  const float* gradient;
  float* first;
  float* second;  ///< Null for SGD.
  std::uint64_t elements;
};

/// A rule over many tensors.
class Steps {
 public:
  virtual ~Steps() = default;
  virtual Status run(const float* constants, Stream stream) = 0;
};

Sgd<Float32, 1> with(const float* constants, Sgd<Float32, 1> operation) {
  operation.step.learning_rate = constants[0];
  operation.step.momentum = constants[1];
  operation.step.weight_decay = constants[2];
  return operation;
}

Adam<Float32, 1> with(const float* constants, Adam<Float32, 1> operation) {
  operation.step.keep = constants[0];
  operation.step.beta1 = constants[1];
  operation.step.rest1 = constants[2];
  operation.step.beta2 = constants[3];
  operation.step.rest2 = constants[4];
  operation.step.step = constants[5];
  operation.step.root_scale = constants[6];
  operation.step.eps = constants[7];
  return operation;
}

template <class Operation>
class StepsOf final : public Steps {
 public:
  Status make(int device, const Arrays* arrays, std::uint64_t count) {
    device_ = device;
    for (std::uint64_t i = 0; i < count; ++i) {
      typename Operation::Tensor tensor;
      tensor.values = arrays[i].values;
      tensor.first = arrays[i].first;
      tensor.second = arrays[i].second;
      tensor.gradients[0] = arrays[i].gradient;
      tensor.elements = arrays[i].elements;
      tensors_.push_back(tensor);
    }
    return device_ == kHost ? Status{} : use_device(device_);
  }
  Status run(const float* constants, Stream stream) override {
    const auto operation = with(constants, Operation());
    if (device_ == kHost) (void)run_on_host(operation, tensors_.data(), tensors_.size());
    Status status;
    for (std::size_t i = 0; device_ != kHost && status.ok() && i < tensors_.size(); ++i)
      status = launch(operation, tensors_[i], nullptr, stream);
    return status;
  }

 private:
  int device_ = kHost;
  std::vector<typename Operation::Tensor> tensors_;
};

template <class Operation>
Steps* make(int device, const Arrays* arrays, std::uint64_t count, const char** error) {
  auto steps = std::make_unique<StepsOf<Operation>>();
  const Status made = steps->make(device, arrays, count);
  *error = made.error;
  return made.ok() ? steps.release() : nullptr;
}

}  // namespace

#define DT_EXPORT extern "C" __attribute__((visibility("default")))

/// Why `device` cannot be used; null: it can.
DT_EXPORT const char* steps_why_not(int device) {
  static std::string why;
  why = why_no_device(device);
  return why.empty() ? nullptr : why.c_str();
}

/// "sgd" or "adam" over `count` tensors, whose arrays stay in place; device -1: the host's memory.
/// On failure null, and *error contains the cause.
DT_EXPORT Steps* steps_make(const char* rule, int device, const Arrays* arrays, std::uint64_t count,
                            const char** error) {
  return std::string(rule) == "sgd" ? make<Sgd<Float32, 1>>(device, arrays, count, error)
                                    : make<Adam<Float32, 1>>(device, arrays, count, error);
}

/// sgd: learning rate, momentum, weight decay. adam: the constants of AdamStep, which decays apart
/// from the gradient. On a device it is put on the stream.
DT_EXPORT const char* steps_run(Steps* steps, const float* constants, void* stream) {
  return steps->run(constants, static_cast<Stream>(stream)).error;
}

DT_EXPORT void steps_free(Steps* steps) { delete steps; }
