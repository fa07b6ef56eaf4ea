#include "launcher/descriptor_limit.h"

#include "core/result.h"

namespace dt::launcher {

rlimit raise_descriptor_limit() {
  rlimit before{};
  DT_CHECK(::getrlimit(RLIMIT_NOFILE, &before) == 0, "a process has a limit of descriptors");
  const rlimit raised{before.rlim_max, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &raised);  // refused: then the old one has to do
  return before;
}

}  // namespace dt::launcher
