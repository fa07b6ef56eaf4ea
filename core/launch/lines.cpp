#include "core/launch/lines.h"

#include <algorithm>

namespace dt {
namespace {

constexpr unsigned kLengthBytes = 4;
constexpr unsigned kBitsOfByte = 8;

void append_piece(std::string& out, std::string_view piece) {
  for (unsigned i = 0; i < kLengthBytes; ++i)
    out.push_back(static_cast<char>(piece.size() >> (i * kBitsOfByte) & 0xff));
  out.append(piece);
  out.push_back('\n');
}

}  // namespace

void append_lines(std::string& out, std::string_view bytes) {
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kMostInLine)))
    append_piece(out, bytes.substr(0, kMostInLine));
}

void append_end(std::string& out) { append_piece(out, {}); }

Result<void> LineDecoder::feed(std::string_view in, std::string& out) {
  while (!in.empty() && !has_ended_) {
    if (state_ == State::kBytes) {
      const std::string_view piece = in.substr(0, left_);
      out.append(piece);
      in.remove_prefix(piece.size());
      left_ -= static_cast<std::uint32_t>(piece.size());
      if (left_ == 0) state_ = State::kEnd;
      continue;
    }
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    if (state_ == State::kEnd) {
      if (byte != '\n')
        return fail(ErrorKind::kProtocol, "something else printed into the agent's stream");
      state_ = State::kLength;
      continue;
    }
    left_ |= std::uint32_t{byte} << (got_ * kBitsOfByte);
    if (++got_ < kLengthBytes) continue;
    got_ = 0;
    has_ended_ = left_ == 0;
    if (left_ > kMostInLine)
      return fail(ErrorKind::kProtocol, "something else printed into the agent's stream");
    state_ = State::kBytes;
  }
  return {};
}

}  // namespace dt
