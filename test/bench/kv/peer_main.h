/// The common part of the peers' programs: dtbench starts them, and they take part through its
/// Control.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace dt::bench {

struct PeerArguments {
  std::string control;  ///< Control::path().
  std::uint32_t rank = 0;
  std::string folder;  ///< Where the ranks of a peer may meet.
  std::size_t bucket_bytes = 0;
};

/// `program CONTROL [RANK [FOLDER [BUCKET]]]`. The process dies with its parent. The work's
/// exception is written to stderr and makes the exit code 1.
int peer_main(int argc, char** argv, const char* program,
              void (*work)(const PeerArguments& arguments));

}  // namespace dt::bench
