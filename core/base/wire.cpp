#include "core/base/wire.h"

namespace dt::wire {

std::string frame(std::uint16_t type, std::string_view body) {
  Writer w;
  w.put(static_cast<std::uint32_t>(body.size() + sizeof(type)));
  w.put(type);
  std::string out = w.take();
  out.append(body);
  return out;
}

void FrameDecoder::feed(std::string_view bytes) {
  if (read_ > 0 && read_ == buffer_.size()) {
    buffer_.clear();
    read_ = 0;
  } else if (read_ > buffer_.size() / 2) {
    buffer_.erase(0, read_);
    read_ = 0;
  }
  buffer_.append(bytes);
}

Result<std::optional<Frame>> FrameDecoder::next() {
  const std::string_view rest = std::string_view(buffer_).substr(read_);
  if (rest.size() < sizeof(std::uint32_t)) return std::nullopt;
  std::uint32_t size = 0;
  std::uint16_t type = 0;
  Reader head(rest);
  head.get(size);
  if (size < sizeof(type) || size - sizeof(type) > max_body_)
    return fail(ErrorKind::kProtocol, "a frame of {} bytes (at most {} are allowed)", size,
                max_body_);
  if (rest.size() < sizeof(size) + size) return std::nullopt;
  head.get(type);
  Frame out{type, std::string(rest.substr(kFrameHeader, size - sizeof(type)))};
  read_ += sizeof(size) + size;
  return out;
}

}  // namespace dt::wire
