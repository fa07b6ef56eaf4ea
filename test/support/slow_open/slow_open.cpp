/// A slow shared volume for tests, by LD_PRELOAD: each open() of a supervisor's volume helper, and
/// of no other process, first takes DT_SLOW_OPEN_MS milliseconds. A network file system looks up
/// and opens at the server, so that there the cost is per open, too. With DT_SLOW_KB_PER_S each
/// write() takes its time by that rate.
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
using Write = ssize_t (*)(int, const void*, size_t);

/// Found when the library is loaded: a forked child that has not executed its program yet may call
/// open(), and must take no lock there.
struct Real {
  Open open;
  Open open64;
  Write write;
  long delay_ms;
  long kb_per_s;
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

void read(const char* name, long& number) {
  const char* text = std::getenv(name);
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), number);
}

__attribute__((constructor)) void find() {
  real.open = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "open"));
  real.open64 = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "open64"));
  real.write = reinterpret_cast<Write>(::dlsym(RTLD_NEXT, "write"));
  if (!is_helper()) return;
  read("DT_SLOW_OPEN_MS", real.delay_ms);
  read("DT_SLOW_KB_PER_S", real.kb_per_s);
}

void wait(long ms) {
  if (ms == 0) return;
  timespec left{ms / 1000, ms % 1000 * 1'000'000};
  while (::nanosleep(&left, &left) != 0) {
  }
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t size) {
  if (real.write == nullptr) find();
  if (real.kb_per_s > 0) wait(static_cast<long>(size) / real.kb_per_s);
  return real.write(fd, bytes, size);
}

int open(const char* path, int flags, ...) {
  if (real.open == nullptr) find();  // another library's constructor came first
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  wait(real.delay_ms);
  return real.open(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  if (real.open64 == nullptr) find();
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  wait(real.delay_ms);
  return real.open64(path, flags, mode);
}
}
