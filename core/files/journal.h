/// The journal: what the supervisor must still know after a crash, as records in one file. Pure:
/// bytes in, records out; supervisor/files/journal_file.h owns the file.
///
///     file   = header line, record...
///     record = u32 size of type and body | u32 CRC-32C of size, type and body | u16 type | body
///
/// Records are appended one at a time and synced, so only the last one can be torn. A torn tail is
/// cut; a bad record followed by a good one is damage, and the file may not be used.
///
/// Version 2 is a journal that was cut: it begins with what stands for the records that it lacks.
/// Programs that only know version 1 refuse it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/wire.h"

namespace dt::journal {

/// The first bytes of a journal; the number is the format's version.
inline constexpr std::string_view kHeader = "dtlaunch journal 1\n";
inline constexpr std::string_view kCutHeader = "dtlaunch journal 2\n";
/// Longest body of a record.
inline constexpr std::size_t kMaxBody = std::size_t{16} << 20;

/// The bytes to append for a record. `body` is at most kMaxBody.
[[nodiscard]] std::string append_bytes(std::uint16_t type, std::string_view body);

template <class Message>
[[nodiscard]] std::string append_bytes(const Message& message) {
  return append_bytes(Message::kType, wire::body_of(message));
}

struct Replay {
  std::string_view header = kHeader;  ///< The one that the file has, or is to get.
  std::vector<wire::Frame> records;
  /// Bytes of header and whole records; the file is to be cut here before anything is appended. 0:
  /// even the header is missing or torn and must be written.
  std::size_t good_size = 0;
  /// Set when the file is damaged before its end or is no journal: `records` are those before the
  /// damage, and going on would be guessing.
  std::optional<Error> error;
};

/// Any bytes give an answer; nothing throws or takes memory beyond a copy of the records.
[[nodiscard]] Replay replay(std::string_view bytes);

}  // namespace dt::journal
