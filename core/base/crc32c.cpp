#include "core/base/crc32c.h"

#include <array>
#include <cstddef>

namespace dt {
namespace {

/// [k][b]: what byte b does to the checksum k bytes later.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? (c >> 1) ^ 0x82f63b78u : c >> 1;
    tables[0][i] = c;
  }
  for (std::size_t k = 1; k < tables.size(); ++k)
    for (std::size_t i = 0; i < 256; ++i)
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xff];
  return tables;
}

}  // namespace

std::uint32_t crc32c(std::uint32_t crc, std::string_view bytes) {
  static constexpr Tables kTables = make_tables();
  const auto byte = [&bytes](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  crc = ~crc;
  // Eight bytes at a time: their contributions do not wait for each other.
  while (bytes.size() >= 8) {
    const std::uint32_t low = crc ^ (std::uint32_t{byte(0)} | std::uint32_t{byte(1)} << 8 |
                                     std::uint32_t{byte(2)} << 16 | std::uint32_t{byte(3)} << 24);
    crc = kTables[7][low & 0xff] ^ kTables[6][(low >> 8) & 0xff] ^ kTables[5][(low >> 16) & 0xff] ^
          kTables[4][low >> 24] ^ kTables[3][byte(4)] ^ kTables[2][byte(5)] ^ kTables[1][byte(6)] ^
          kTables[0][byte(7)];
    bytes.remove_prefix(8);
  }
  for (std::size_t i = 0; i < bytes.size(); ++i)
    crc = kTables[0][(crc ^ byte(i)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

}  // namespace dt
