#include "core/base/crc32c.h"

#include <string>

#include "test/support/catch.h"

using dt::crc32c;

TEST_CASE("CRC-32C gives the values of RFC 3720") {
  CHECK(crc32c(0, "") == 0);
  CHECK(crc32c(0, "123456789") == 0xe3069283);
  CHECK(crc32c(0, std::string(32, '\0')) == 0x8a9136aa);
  CHECK(crc32c(0, std::string(32, '\xff')) == 0x62a8ab43);
}

TEST_CASE("CRC-32C of parts, cut anywhere, is that of the whole") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i * 37);
  const auto whole = crc32c(0, text);
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    CHECK(crc32c(crc32c(0, text.substr(0, cut)), text.substr(cut)) == whole);
}
