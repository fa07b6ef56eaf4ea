/// The descriptor limits of this process and of the programs it starts.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <string>

namespace dt::io {

/// Raises the soft limit to the hard one. Returns the limit before the first call: programs started
/// for a user get that back, since one that uses select() must not get descriptors above 1023. Not
/// for two threads at once.
rlimit raise_descriptor_limit();

/// Restores the limit from before raise_descriptor_limit(); useful between fork and exec. Open
/// descriptors stay open.
void restore_descriptor_limit();

/// Restores that limit for its lifetime, while a single-threaded program spawns another program.
class RestoredDescriptorLimit {
 public:
  RestoredDescriptorLimit() { restore_descriptor_limit(); }
  ~RestoredDescriptorLimit() { raise_descriptor_limit(); }
  RestoredDescriptorLimit(const RestoredDescriptorLimit&) = delete;
  RestoredDescriptorLimit& operator=(const RestoredDescriptorLimit&) = delete;
};

/// The lack and its remedy if `purpose` needs `needed` descriptors and the hard limit is lower;
/// otherwise empty.
[[nodiscard]] std::string lacking_descriptors(std::uint64_t needed, const std::string& purpose);

}  // namespace dt::io
