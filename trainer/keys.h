/// What the trainer's files that talk to the kvstore share.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "core/base/result.h"
#include "kvstore/dtkv.h"

namespace dt::train {

/// A dtkv_* code as a Result: "cannot <doing>: <what the library says>". On the thread and before
/// the next call of the library. kClosed: the servers were lost (DTKV_ROLLBACK).
[[nodiscard]] Result<void> checked(int code, const char* doing);

/// The floats or 64-bit integers of a contiguous tensor, where they are.
[[nodiscard]] dtkv_array array_of(const torch::Tensor& tensor);

/// Named tensors as the kvstore wants them. The tensors keep their memory as long as this lives.
struct KeyTable {
  std::vector<std::string> names;
  std::vector<torch::Tensor> tensors;

  void add(std::string name, torch::Tensor tensor);
  [[nodiscard]] std::vector<const char*> keys() const;
  [[nodiscard]] std::vector<dtkv_array> arrays() const;
};

}  // namespace dt::train
