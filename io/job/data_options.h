/// How workers and servers exchange data: what the command line, the job's spec and the processes'
/// environment say in the same words.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace dt::io {

struct FlagGroup;

struct DataOptions {
  std::string interface;          ///< Bind data connections to this interface only.
  std::uint16_t server_port = 0;  ///< First port for servers on a host; 0: any free one.
  std::string transport = "auto";
  std::string data_auth = "auto";
  bool deterministic = false;         ///< Servers sum in worker id order.
  std::string server_device = "cpu";  ///< See core/protocol/device_choice.h.
  bool refuse_nonfinite = false;      ///< Servers refuse gradients with infinite or NaN elements.
  std::uint32_t busy_poll_us = 0;     ///< Workers and servers poll so long before they sleep.
};

/// Whether parse_device() of core/protocol/device_choice.h takes it.
[[nodiscard]] Result<void> check_device(const std::string& text);

/// `data` outlives the flags.
[[nodiscard]] FlagGroup data_flags(DataOptions& data);

}  // namespace dt::io
