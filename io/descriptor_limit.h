/// How many descriptors this process may have, and those that it starts.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <string>

namespace dt::io {

/// Raises the soft limit to the hard one. Returns the limit before the first call: programs started
/// for a user get that back, since one that uses select() must not get descriptors above 1023. Not
/// for two threads at once.
rlimit raise_descriptor_limit();

/// Gives this process the limit from before raise_descriptor_limit(); of use between fork and exec.
/// Open descriptors stay open.
void restore_descriptor_limit();

/// The same for a while, in which a program of one thread spawns another program.
class RestoredDescriptorLimit {
 public:
  RestoredDescriptorLimit() { restore_descriptor_limit(); }
  ~RestoredDescriptorLimit() { raise_descriptor_limit(); }
  RestoredDescriptorLimit(const RestoredDescriptorLimit&) = delete;
  RestoredDescriptorLimit& operator=(const RestoredDescriptorLimit&) = delete;
};

/// What `purpose`, for which this process needs `needed` descriptors, lacks, with the remedy; empty
/// where the hard limit suffices.
[[nodiscard]] std::string lacking_descriptors(std::uint64_t needed, const std::string& purpose);

}  // namespace dt::io
