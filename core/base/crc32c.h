/// The checksum of the journal's records and of checkpoints.
#pragma once

#include <cstdint>
#include <string_view>

namespace dt {

/// CRC-32C (Castagnoli) of `bytes`, going on from `crc`; 0 begins.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t crc, std::string_view bytes);

}  // namespace dt
