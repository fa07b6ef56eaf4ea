/// The common part of the trainer's files that use the kvstore.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "core/base/result.h"
#include "kvstore/kvstore.h"

namespace dt::train {

/// "cannot <doing>: <the library's message>". kClosed: the servers were lost (DTKV_ROLLBACK).
[[nodiscard]] Error error_of(const dtkv::Error& error, const char* doing);

/// Turns the kvstore's exception from `call` into a Result.
template <class Call>
[[nodiscard]] Result<void> checked(const char* doing, Call call) {
  try {
    call();
    return {};
  } catch (const dtkv::Error& error) {
    return tl::unexpected(error_of(error, doing));
  }
}

/// A view of the floats or 64-bit integers of a contiguous tensor.
[[nodiscard]] dtkv_array array_of(const torch::Tensor& tensor);

/// Named tensors as entries for the kvstore. The tensors keep their memory while this lives.
struct KeyTable {
  std::vector<std::string> names;
  std::vector<torch::Tensor> tensors;

  void add(std::string name, torch::Tensor tensor);
  [[nodiscard]] std::vector<dtkv::Entry> entries() const;
};

}  // namespace dt::train
