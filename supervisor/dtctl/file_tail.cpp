#include "supervisor/dtctl/file_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/line_prefixer.h"

namespace dt::supervisor {

std::string FileTail::more() {
  std::string piece(kPiece, '\0');
  for (;;) {
    if (!file_) file_ = io::Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file_) return "";
    ssize_t n = 0;
    do n = ::pread(file_.get(), piece.data(), piece.size(), static_cast<off_t>(at_));
    while (n < 0 && errno == EINTR);
    if (n > 0) {
      at_ += static_cast<std::uint64_t>(n);
      piece.resize(static_cast<std::size_t>(n));
      return piece;
    }
    struct stat ours {};
    struct stat there {};
    const bool is_known = ::fstat(file_.get(), &ours) == 0 && ::stat(path_.c_str(), &there) == 0;
    const bool is_another =
        is_known && (ours.st_ino != there.st_ino || ours.st_dev != there.st_dev ||
                     static_cast<std::uint64_t>(there.st_size) < at_);
    if (!is_another) return "";
    file_.reset();
    at_ = 0;
  }
}

std::string ScreenText::feed(std::string piece) {
  constexpr std::size_t kLongestColour = 32;  // an escape at the end may be the begin of one
  std::string text = std::exchange(rest_, "") + std::move(piece);
  if (text.empty()) return "";
  std::size_t end = io::whole_characters(text);
  const std::size_t escape = text.rfind('\x1b');
  if (escape != std::string::npos && text.size() - escape < kLongestColour &&
      text.find_first_not_of("0123456789;[", escape + 1) == std::string::npos)
    end = escape;
  rest_ = text.substr(end);
  return screen_text(std::string_view(text).substr(0, end));
}

std::string ScreenText::finish() { return screen_text(std::exchange(rest_, "")); }

std::string screen_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    const bool is_dos = end != std::string_view::npos && line.ends_with('\r');
    if (is_dos) line.remove_suffix(1);
    out += io::printable(line);
    if (end == std::string_view::npos) break;
    out += '\n';
    text.remove_prefix(end + 1);
  }
  return out;
}

std::string screen_json(const std::string& line) {
  const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7f; };
  if (std::ranges::all_of(line, is_plain)) return line;
  const auto event = nlohmann::ordered_json::parse(line, nullptr, false);
  if (event.is_discarded()) return io::printable(line);
  return event.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace dt::supervisor
