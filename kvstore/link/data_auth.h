/// Which data connections authenticate every frame, not only their beginning (--data-auth).
#pragma once

#include <cstdint>

namespace dt::kv {

/// What one end requires. If either end of a connection requires frames with tags, they have them.
enum class DataAuth : std::uint8_t {
  kAuto,       ///< Frames, unless the connection stays inside this machine.
  kFrames,     ///< Frames, on every connection.
  kHandshake,  ///< The handshake alone: who can write into the network is trusted.
};

[[nodiscard]] constexpr bool wants_tags(DataAuth auth, bool is_inside_machine) {
  return auth == DataAuth::kFrames || (auth == DataAuth::kAuto && !is_inside_machine);
}

}  // namespace dt::kv
