#pragma once

#include <cstdint>

namespace dt::kv {

/// How large chunks travel between a worker and a server.
enum class Transport : std::uint8_t {
  kAuto,  ///< Shared memory with servers that can open this worker's memory, else TCP.
  kTcp,
  kSharedMemory,  ///< A server that cannot open it is an error.
};

}  // namespace dt::kv
