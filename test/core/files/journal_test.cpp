#include "core/files/journal.h"

#include <random>

#include "test/support/catch.h"

using namespace dt;

namespace {

struct Sample {
  std::string bytes = std::string(journal::kHeader);
  std::vector<wire::Frame> records;
  std::vector<std::size_t> ends{journal::kHeader.size()};  ///< ends[i]: size with i records.
};

Sample make_sample(std::uint32_t seed, int count) {
  Sample out;
  std::mt19937 random(seed);
  for (int i = 0; i < count; ++i) {
    wire::Frame record;
    record.type = static_cast<std::uint16_t>(random());
    const std::size_t size = random() % 40;
    for (std::size_t n = 0; n < size; ++n) record.body.push_back(static_cast<char>(random()));
    out.bytes += journal::append_bytes(record.type, record.body);
    out.ends.push_back(out.bytes.size());
    out.records.push_back(record);
  }
  return out;
}

std::vector<wire::Frame> first(const std::vector<wire::Frame>& all, std::size_t n) {
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n)};
}

}  // namespace

TEST_CASE("journal: what was appended is replayed", "[journal]") {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const Sample s = make_sample(seed, static_cast<int>(seed));
    const auto r = journal::replay(s.bytes);
    CHECK_FALSE(r.error);
    CHECK(r.records == s.records);
    CHECK(r.good_size == s.bytes.size());
  }
}

TEST_CASE("journal: cut anywhere, the whole records stay and nothing else", "[journal][property]") {
  const Sample s = make_sample(7, 12);
  for (std::size_t cut = 0; cut <= s.bytes.size(); ++cut) {
    CAPTURE(cut);
    const auto r = journal::replay(std::string_view(s.bytes).substr(0, cut));
    REQUIRE_FALSE(r.error);
    if (cut < journal::kHeader.size()) {
      REQUIRE(r.good_size == 0);
      continue;
    }
    std::size_t whole = 0;
    while (whole + 1 < s.ends.size() && s.ends[whole + 1] <= cut) ++whole;
    REQUIRE(r.good_size == s.ends[whole]);
    REQUIRE(r.records == first(s.records, whole));
  }
}

TEST_CASE("journal: any bit flipped in the last record cuts it, earlier it is damage",
          "[journal][property]") {
  const Sample s = make_sample(11, 6);
  const std::size_t last = s.ends[s.ends.size() - 2];
  for (std::size_t bit = journal::kHeader.size() * 8; bit < s.bytes.size() * 8; ++bit) {
    std::string bytes = s.bytes;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    CAPTURE(bit);
    const auto r = journal::replay(bytes);
    std::size_t whole = 0;
    while (s.ends[whole + 1] <= bit / 8) ++whole;
    REQUIRE(r.good_size == s.ends[whole]);
    REQUIRE(r.records == first(s.records, whole));
    REQUIRE(r.error.has_value() == (bit / 8 < last));
    if (r.error)
      REQUIRE(r.error->message.find(fmt::format("byte {}", s.ends[whole])) != std::string::npos);
  }
}

TEST_CASE("journal: a tail of zeros, as a crash leaves it, is cut", "[journal]") {
  const Sample s = make_sample(3, 4);
  const auto r = journal::replay(s.bytes + std::string(4096, '\0'));
  CHECK_FALSE(r.error);
  CHECK(r.good_size == s.bytes.size());
}

TEST_CASE("journal: another file is an error, not an empty journal", "[journal]") {
  CHECK(journal::replay("10.0.0.1\n10.0.0.2\nand more text").error);
  CHECK(journal::replay("dtlaunch journal 3\n").error->message ==
        "this journal has format 3, and this version of dtlaunch reads 1 and 2: use the version "
        "that wrote it");
  const auto cut =
      journal::replay(std::string(journal::kCutHeader) + journal::append_bytes(1, "a"));
  CHECK_FALSE(cut.error);
  CHECK(cut.header == journal::kCutHeader);
  CHECK(cut.records.size() == 1);
}

TEST_CASE("journal: random bytes never crash", "[journal][property]") {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = i % 2 == 0 ? std::string(journal::kHeader) : "";
    const std::size_t size = random() % 64;
    for (std::size_t n = 0; n < size; ++n) bytes.push_back(static_cast<char>(random() % 8));
    const auto r = journal::replay(bytes);
    REQUIRE(r.good_size <= bytes.size());
  }
}

TEST_CASE("journal: the checksum is CRC-32C, so that other tools can read the file", "[journal]") {
  // The value is from an independent implementation that gives 0xe3069283 for "123456789".
  const std::string record = journal::append_bytes(0x3231, "3456789");
  REQUIRE(record.size() == 4 + 4 + 9);
  CHECK(record.substr(8) == "123456789");
  CHECK(record.substr(0, 4) == std::string("\x09\0\0\0", 4));
  const auto crc = static_cast<unsigned char>(record[4]) |
                   static_cast<unsigned>(static_cast<unsigned char>(record[5])) << 8 |
                   static_cast<unsigned>(static_cast<unsigned char>(record[6])) << 16 |
                   static_cast<unsigned>(static_cast<unsigned char>(record[7])) << 24;
  CHECK(crc == 0x5717d278u);
}
