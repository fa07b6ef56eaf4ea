/// How large chunks travel between a worker and a server.
#pragma once

#include <cstdint>

namespace dt::kv {

enum class Transport : std::uint8_t {
  kAuto,  ///< Shared memory with servers that can open this worker's memory, else TCP.
  kTcp,
  kSharedMemory,  ///< A server that cannot open it is an error.
};

}  // namespace dt::kv
