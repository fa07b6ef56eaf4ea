// The function that Debian 12's libstdc++.a needs of glibc 2.36, for hosts with an older glibc.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

// Used by std::random_device, which our code does not use.
extern "C" __attribute__((visibility("hidden"))) std::uint32_t arc4random() {
  std::uint32_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) std::abort();
  return number;
}
