#include "core/files/journal.h"

#include "core/base/crc32c.h"

namespace dt::journal {
namespace {

constexpr std::size_t kHead = 8;  // size and checksum

struct Record {
  wire::Frame frame;
  std::size_t bytes = 0;
};

/// The record at the start of `bytes`, if a whole and undamaged one is there.
std::optional<Record> record_at(std::string_view bytes) {
  if (bytes.size() < kHead + sizeof(std::uint16_t)) return std::nullopt;
  std::uint32_t size = 0;
  std::uint32_t crc = 0;
  wire::Reader r(bytes);
  r.get(size);
  r.get(crc);
  if (size < sizeof(std::uint16_t) || size > kMaxBody + sizeof(std::uint16_t) ||
      size > bytes.size() - kHead)
    return std::nullopt;
  if (crc32c(crc32c(0, bytes.substr(0, 4)), bytes.substr(kHead, size)) != crc) return std::nullopt;
  Record out;
  r.get(out.frame.type);
  out.frame.body = bytes.substr(kHead + sizeof(std::uint16_t), size - sizeof(std::uint16_t));
  out.bytes = kHead + size;
  return out;
}

Error wrong_header(std::string_view bytes) {
  constexpr std::string_view kName = "dtlaunch journal ";
  const std::string_view line = bytes.substr(0, bytes.substr(0, 40).find('\n'));
  if (line.size() < bytes.size() && line.starts_with(kName))
    return {ErrorKind::kInvalid,
            fmt::format("this journal has format {}, and this version of dtlaunch reads 1 and 2: "
                        "use the version that wrote it",
                        line.substr(kName.size()))};
  return {ErrorKind::kInvalid, "this is no journal of this version (wrong first line)"};
}

}  // namespace

std::string append_bytes(std::uint16_t type, std::string_view body) {
  DT_CHECK(body.size() <= kMaxBody, "a journal record is too long");
  std::string record = wire::frame(type, body);
  return record.insert(sizeof(std::uint32_t), wire::body_of(crc32c(0, record)));
}

Replay replay(std::string_view bytes) {
  Replay out;
  if (bytes.size() < kHeader.size() && kHeader.starts_with(bytes)) return out;
  if (bytes.starts_with(kCutHeader)) out.header = kCutHeader;
  if (!bytes.starts_with(out.header)) {
    out.error = wrong_header(bytes);
    return out;
  }
  out.good_size = out.header.size();
  while (auto record = record_at(bytes.substr(out.good_size))) {
    out.good_size += record->bytes;
    out.records.push_back(std::move(record->frame));
  }
  for (std::size_t at = out.good_size + 1; at < bytes.size(); ++at) {
    if (!record_at(bytes.substr(at))) continue;
    out.error = Error{ErrorKind::kInvalid,
                      fmt::format("the journal is damaged at byte {} (a good record follows at {})",
                                  out.good_size, at)};
    break;
  }
  return out;
}

}  // namespace dt::journal
