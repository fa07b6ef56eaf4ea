/// The tensors that one operation exchanges: a list of float32 tensors, a real model's or one of
/// given sizes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace dt::bench {

struct TensorList {
  std::string name;
  std::vector<std::uint64_t> elements;  ///< Elements of each tensor, in the model's order.

  [[nodiscard]] std::uint64_t total_elements() const;
  [[nodiscard]] std::uint64_t bytes() const { return total_elements() * sizeof(float); }
};

/// "resnet50" (torchvision's: 161 tensors), "bert-base" (199 tensors, with the pooler), "embedding"
/// (one table of 1,000,000 rows of 250: 10^9 bytes).
[[nodiscard]] Result<TensorList> model_list(std::string_view name);

/// "64M": one tensor of that many bytes; "1000x1K": a thousand; "64M+100x4K": both in one list.
/// K, M and G are powers of 1024.
[[nodiscard]] Result<TensorList> list_of_sizes(std::string_view text);

/// "512", "64K", "1M": bytes.
[[nodiscard]] Result<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace dt::bench
