/// What the trainer's files that talk to the kvstore share.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "core/base/result.h"
#include "kvstore/kvstore.h"

namespace dt::train {

/// "cannot <doing>: <what the library says>". kClosed: the servers were lost (DTKV_ROLLBACK).
[[nodiscard]] Error error_of(const dtkv::Error& error, const char* doing);

/// What `call` throws of the kvstore's, as a Result.
template <class Call>
[[nodiscard]] Result<void> checked(const char* doing, Call call) {
  try {
    call();
    return {};
  } catch (const dtkv::Error& error) {
    return tl::unexpected(error_of(error, doing));
  }
}

/// The floats or 64-bit integers of a contiguous tensor, where they are.
[[nodiscard]] dtkv_array array_of(const torch::Tensor& tensor);

/// Named tensors as the kvstore wants them. The tensors keep their memory as long as this lives.
struct KeyTable {
  std::vector<std::string> names;
  std::vector<torch::Tensor> tensors;

  void add(std::string name, torch::Tensor tensor);
  [[nodiscard]] std::vector<dtkv::Entry> entries() const;
};

}  // namespace dt::train
