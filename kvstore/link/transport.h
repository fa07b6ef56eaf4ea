#pragma once

#include <cstdint>

namespace dt::kv {

/// What large chunks travel by between a worker and a server.
enum class Transport : std::uint8_t {
  kAuto,  ///< Shared memory where a server shows that it sees this worker's, else TCP.
  kTcp,
  kSharedMemory,  ///< A server that does not see it is an error.
};

}  // namespace dt::kv
