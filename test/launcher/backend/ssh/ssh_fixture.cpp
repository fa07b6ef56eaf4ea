#include "test/launcher/backend/ssh/ssh_fixture.h"

#include <filesystem>

namespace dt::test {

io::awaitable<Result<std::string>> read_all(io::ByteStream& stream) {
  std::string text;
  std::string piece(64 * 1024, '\0');
  for (;;) {
    auto n = co_await stream.read(piece);
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) co_return std::move(text);
    text.append(piece, 0, *n);
  }
}

io::awaitable<Result<std::string>> read_some(io::ByteStream& stream, std::size_t size) {
  std::string text;
  std::string piece(64 * 1024, '\0');
  while (text.size() < size) {
    auto n = co_await stream.read(piece);
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) break;
    text.append(piece, 0, *n);
  }
  co_return std::move(text);
}

std::string noise(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 12345;
  for (char& c : bytes) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>(state >> 24);
  }
  return bytes;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> fake_bundle(const Sshd& sshd) {
  const std::string folder = sshd.dir() + "/bundle";
  std::filesystem::create_directory(folder);
  write_file(folder + "/dtagent", "#!/bin/sh\nfor a; do printf '<%s>' \"$a\"; done\ncat\n", 0700);
  write_file(folder + "/dtserver", noise(300'000), 0700);
  return {folder + "/dtagent", folder + "/dtserver"};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

}  // namespace dt::test
