#include "launcher/agent/carry.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "core/launch/lines.h"
#include "io/fd.h"

namespace dt::launcher {
namespace {

constexpr std::size_t kPiece = std::size_t{256} << 10;

/// What can be read at once; empty at the end.
std::string_view read_piece(int from, std::string& buffer) {
  for (;;) {
    const ssize_t n = ::read(from, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    return {buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
  }
}

}  // namespace

void each_piece(bool lines, const std::function<bool(std::string_view)>& take) {
  std::string buffer(kPiece, '\0');
  LineDecoder decoder;
  std::string decoded;
  for (;;) {
    std::string_view piece = read_piece(STDIN_FILENO, buffer);
    if (piece.empty()) return;
    if (lines) {
      decoded.clear();
      if (!decoder.feed(piece, decoded) || decoder.has_ended()) return;
      piece = decoded;
    }
    if (!take(piece)) return;
  }
}

void carry_in(int agent, bool lines) {
  each_piece(lines, [agent](std::string_view piece) { return io::write_all(agent, piece); });
}

void carry_out(int agent, bool lines) {
  std::string buffer(kPiece, '\0');
  std::string coded;
  for (;;) {
    std::string_view piece = read_piece(agent, buffer);
    if (piece.empty()) break;
    if (lines) {
      coded.clear();
      append_lines(coded, piece);
      piece = coded;
    }
    if (!io::write_all(STDOUT_FILENO, piece)) return;
  }
  write_end(lines);
}

void write_out(std::string_view bytes, bool lines) {
  std::string coded;
  if (lines) append_lines(coded, bytes);
  io::write_all(STDOUT_FILENO, lines ? coded : bytes);
}

void write_end(bool lines) {
  std::string coded;
  if (lines) append_end(coded);
  io::write_all(STDOUT_FILENO, coded);
}

}  // namespace dt::launcher
