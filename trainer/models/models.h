/// The networks of dttrain.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/result.h"

namespace dt::train {

class Network;  // trainer/models/network.h

struct NetworkSpec {
  std::string name = "lenet";     ///< lenet, mlp or resnet.
  std::uint32_t num_layers = 20;  ///< Layers of a resnet: 6n + 2, as 20, 56 or 110.
  std::uint32_t channels = 1;
  std::uint32_t height = 28;
  std::uint32_t width = 28;
  std::uint32_t classes = 10;
  std::uint64_t seed = 1;  ///< For the initial weights; the same on all workers.
};

[[nodiscard]] Result<std::shared_ptr<Network>> make_network(const NetworkSpec& spec);

}  // namespace dt::train
