/// How many descriptors this process may have.
#pragma once

#include <sys/resource.h>

namespace dt::launcher {

/// Raises the soft limit to the hard one. Returns what it was: processes started for a user get
/// that back, since a program that uses select() must not be given descriptors above 1023.
rlimit raise_descriptor_limit();

}  // namespace dt::launcher
