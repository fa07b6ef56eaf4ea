#include "core/files/safetensors.h"

#include <fstream>
#include <iterator>

#include "test/support/catch.h"

using namespace dt;
using namespace dt::safetensors;

namespace {

/// A file of a release: its bytes are a contract.
std::string recorded(const std::string& name) {
  std::ifstream file(std::string(DT_SAFETENSORS) + "/" + name, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

Header parsed(const std::string& file) {
  const auto length = parse_length(std::string_view(file).substr(0, kLengthBytes), file.size());
  REQUIRE(length);
  const auto header = parse_header(std::string_view(file).substr(kLengthBytes, *length),
                                   file.size() - kLengthBytes - *length);
  REQUIRE(header);
  return *header;
}

std::string wrong_with(std::string_view text, std::uint64_t data_bytes) {
  const auto header = parse_header(text, data_bytes);
  return header ? "" : header.error().message;
}

}  // namespace

TEST_CASE("safetensors: a server's recorded file is read, and its header written byte for byte",
          "[safetensors]") {
  const std::string file = recorded("server.safetensors");
  const Header header = parsed(file);
  REQUIRE(header.arrays.size() == 7);
  CHECK(header.arrays[0] == Array{"key1.chunk0", "F32", {3}, 0, 12});
  CHECK(header.arrays[6] == Array{"key5.chunk0", "F32", {0}, 52, 52});
  CHECK(header.metadata.at("format") == "dtlaunch server 1");
  const auto checksums = checksums_of(header);
  REQUIRE(checksums);
  CHECK(checksums->front() == 0x86739cf2);
  CHECK(file.starts_with(format_header(header, Order::kOfData)));
}

TEST_CASE("safetensors: a trainer's recorded file is read, and its header written byte for byte",
          "[safetensors]") {
  const std::string file = recorded("trainer.safetensors");
  const Header header = parsed(file);
  REQUIRE(header.arrays.size() == 3);
  CHECK(header.arrays[0] == Array{"fc.weight", "F32", {2, 3}, 0, 24});
  CHECK(header.arrays[2] == Array{"empty", "F32", {0, 4}, 32, 32});
  CHECK(file.starts_with(format_header(header, Order::kOfNames)));
}

TEST_CASE("safetensors: a length beyond the file or the limit is refused", "[safetensors]") {
  const std::string eight("\x08\0\0\0\0\0\0\0", 8);
  CHECK(parse_length(eight, 16) == 8U);
  CHECK_FALSE(parse_length(eight, 15));
  CHECK_FALSE(parse_length(eight.substr(0, 7), 7));
  const std::string limit("\0\0\0\x04\0\0\0\0", 8);
  CHECK(parse_length(limit, 8 + kMaxHeader) == kMaxHeader);
  const std::string above("\x01\0\0\x04\0\0\0\0", 8);
  CHECK_FALSE(parse_length(above, 9 + kMaxHeader));
}

TEST_CASE("safetensors: what is wrong with a header is said", "[safetensors]") {
  const auto one = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"w":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape,
                       offsets);
  };
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
  };
  CHECK(wrong_with(one("F32", "[1]", "[0,4]"), 4).empty());
  CHECK(wrong_with(one("F32", "[]", "[0,4]"), 4).empty());  // a number
  CHECK(has(wrong_with(one("F32", "[1]", "[0,4]"), 8), "its arrays end before the file does"));
  CHECK(has(wrong_with(one("F32", "[1]", "[4,8]"), 8), "arrays overlap or leave gaps"));
  CHECK(has(wrong_with(one("F32", "[2]", "[0,4]"), 4), "another size"));
  CHECK(has(wrong_with(one("F32", "[2]", "[0,8]"), 4), "outside the file"));
  CHECK(has(wrong_with(one("F32", "[1]", "[8,4]"), 8), "outside the file"));
  CHECK(has(wrong_with(one("F32", "[4294967296,4294967296]", "[0,0]"), 0), "another size"));
  CHECK(has(wrong_with(one("F32", "[-1]", "[0,4]"), 4), "no whole number"));
  CHECK(has(wrong_with(one("F32", "[1.0]", "[0,4]"), 4), "no whole number"));
  CHECK(has(wrong_with(one("F32", "[18446744073709551616]", "[0,4]"), 4), "no whole number"));
  CHECK(has(wrong_with(one("F32", "1", "[0,4]"), 4), "no shape"));
  CHECK(has(wrong_with(one("F32", "[1]", "[0,4,4]"), 4), "no place"));
  CHECK(has(wrong_with(one("C64", "[1]", "[0,8]"), 8), "dtype C64"));
  CHECK(has(wrong_with("[1,2]", 0), "no JSON object"));
  CHECK(has(wrong_with(R"({"w":{}})", 0), "dtype"));
  CHECK(has(wrong_with(R"({"__metadata__":{"a":1}})", 0), "string"));
  CHECK_FALSE(wrong_with(R"({"w":)", 0).empty());
  const std::string w = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  CHECK(has(wrong_with("{" + w + "," + w + "}", 4), "w is there twice"));
}

TEST_CASE("safetensors: a checksum for each array, of hex digits", "[safetensors]") {
  Header header{{{"a", "U8", {1}, 0, 1}, {"b", "U8", {1}, 1, 2}}, {}};
  CHECK_FALSE(checksums_of(header));
  const std::vector<std::uint32_t> checksums = {0x1234, 0xffffffff};
  set_checksums(header.metadata, checksums);
  CHECK(header.metadata.at("crc32c") == "00001234ffffffff");
  CHECK(checksums_of(header) == checksums);
  header.metadata["crc32c"] = "0000123gffffffff";
  CHECK_FALSE(checksums_of(header));
  header.metadata["crc32c"] = "00001234";
  CHECK_FALSE(checksums_of(header));
}
