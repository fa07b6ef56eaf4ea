/// A job's checkpoints on the shared volume: makes one count when its files are there, and lets the
/// oldest go.
#pragma once

#include <string>

#include "io/asio.h"
#include "io/job/checkpoint_manifest.h"
#include "supervisor/volume/client.h"

namespace dt::supervisor {

/// Writes the manifest and renames the folder. Doing it again, after a crash or a deadline that
/// passed, is harmless. A checkpoint of that epoch from before the job went back, with a lower
/// generation, is replaced. kInvalid: a server's file is not there, which no repetition will change
/// for long, or one of a higher generation is.
io::awaitable<Result<void>> seal_checkpoint(VolumeClient& volume, std::string folder,
                                            io::Manifest manifest);

/// Removes what io::outdated_checkpoints names; `newest` is the one that counts.
io::awaitable<Result<void>> prune_checkpoints(VolumeClient& volume, std::string folder,
                                              std::size_t keep, Epoch newest);

}  // namespace dt::supervisor
