/// A growing file, a piece at a time, in constant memory however long it is.
#pragma once

#include <cstdint>
#include <string>

#include "io/fd.h"

namespace dt::supervisor {

class FileTail {
 public:
  static constexpr std::size_t kPiece = std::size_t{64} << 10;

  explicit FileTail(std::string path) : path_(std::move(path)) {}

  /// The next piece, at most kPiece bytes; empty if there is nothing more now. After the end of a
  /// rotated file the new one follows.
  [[nodiscard]] std::string more();

 private:
  std::string path_;
  io::Fd file_;
  std::uint64_t at_ = 0;
};

/// Text for a terminal: control characters are shown as by io::printable(), except ends of lines.
/// Only whole characters: up to three bytes may wait for the next piece.
class ScreenText {
 public:
  [[nodiscard]] std::string feed(std::string piece);
  /// The bytes that still wait.
  [[nodiscard]] std::string finish();

 private:
  std::string rest_;
};

/// The same for a whole text.
[[nodiscard]] std::string screen_text(std::string_view text);

/// A line of JSON, for a terminal; one that is no JSON as by io::printable().
[[nodiscard]] std::string screen_json(const std::string& line);

}  // namespace dt::supervisor
