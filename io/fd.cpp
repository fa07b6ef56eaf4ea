#include "io/fd.h"

#include <unistd.h>

namespace dt::io {

void Fd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

}  // namespace dt::io
