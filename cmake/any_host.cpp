// What Debian 12's libstdc++.a takes from glibc 2.36, for hosts whose glibc is older.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

// std::random_device's; nothing of ours calls it.
extern "C" __attribute__((visibility("hidden"))) std::uint32_t arc4random() {
  std::uint32_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) std::abort();
  return number;
}
