/// A slow shared volume for tests, by LD_PRELOAD: each open() of a supervisor's volume helper, and
/// of no other process, first takes DT_SLOW_OPEN_MS milliseconds. A network file system looks up
/// and opens at the server, so that there the cost is per open, too.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

using Open = int (*)(const char*, int, ...);

/// Found when the library is loaded: a forked child that has not executed its program yet may call
/// open(), and must take no lock there.
struct Real {
  Open open;
  Open open64;
  long delay_ms;
};
Real real{};

bool is_helper() {
  char line[4096] = {};
  const int fd = real.open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = ::read(fd, line, sizeof line - 1);
  ::close(fd);
  const char* end = line + (n > 0 ? n : 0);
  for (const char* word = line; word < end; word += std::strlen(word) + 1)
    if (std::strcmp(word, "--volume-helper") == 0) return true;
  return false;
}

__attribute__((constructor)) void find() {
  real.open = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "open"));
  real.open64 = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "open64"));
  const char* text = std::getenv("DT_SLOW_OPEN_MS");
  if (text != nullptr && is_helper())
    std::from_chars(text, text + std::strlen(text), real.delay_ms);
}

void wait() {
  if (real.delay_ms == 0) return;
  timespec left{real.delay_ms / 1000, real.delay_ms % 1000 * 1'000'000};
  while (::nanosleep(&left, &left) != 0) {
  }
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  if (real.open == nullptr) find();  // another library's constructor came first
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  wait();
  return real.open(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  if (real.open64 == nullptr) find();
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  wait();
  return real.open64(path, flags, mode);
}
}
