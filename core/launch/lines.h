/// Bytes through something that passes on whole lines only, as srun does: each piece travels as
///
///     u32 length (little endian), 1 to kMostInLine | the bytes | '\n'
///
/// so that what was written is on its way at once, whatever the bytes are. A length of 0 is the
/// end: what carries the lines may stay open longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace dt {

inline constexpr std::size_t kMostInLine = std::size_t{64} << 10;

/// Appends `bytes`, in as many pieces as it takes.
void append_lines(std::string& out, std::string_view bytes);

/// Appends the end.
void append_end(std::string& out);

/// The other side of it.
class LineDecoder {
 public:
  /// Appends the bytes that `in` carries to `out`, and ignores what follows the end. kProtocol:
  /// `in` is not made by append_lines(); then the decoder is of no further use.
  [[nodiscard]] Result<void> feed(std::string_view in, std::string& out);
  /// The end has come.
  [[nodiscard]] bool has_ended() const { return has_ended_; }

 private:
  enum class State { kLength, kBytes, kEnd };
  State state_ = State::kLength;
  unsigned got_ = 0;  ///< Bytes of the length.
  bool has_ended_ = false;
  std::uint32_t left_ = 0;  ///< The length, then how many of the bytes are missing.
};

}  // namespace dt
