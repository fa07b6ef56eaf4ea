/// Ownership of a file descriptor.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/result.h"

namespace dt::io {

/// Move-only; closes on destruction. -1 is none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

/// Writes to a descriptor that may block. False, with errno: the other side is gone.
bool write_all(int fd, std::string_view bytes);
/// Appends what comes until the end, or until `text` has at least `most` bytes. False, with errno:
/// a read failed.
bool read_rest(int fd, std::string& text, std::size_t most = std::string::npos);

struct Pipe {
  Fd read;
  Fd write;
};
[[nodiscard]] Result<Pipe> make_pipe();

struct SocketPair {
  Fd ours;
  Fd theirs;
};
[[nodiscard]] Result<SocketPair> make_socket_pair();

/// Whether a process listens on the unix socket at `path`; nullopt if that cannot be known.
[[nodiscard]] std::optional<bool> somebody_listens(const std::string& path);

}  // namespace dt::io
