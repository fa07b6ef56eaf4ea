/// A job's checkpoints on the shared volume: makes one count when its files are there, and lets the
/// oldest go.
#pragma once

#include <string>

#include "io/asio.h"
#include "io/checkpoint.h"
#include "supervisor/volume.h"

namespace dt::supervisor {

/// Writes the manifest and renames the folder. Doing it again, after a crash or a deadline that
/// passed, is harmless. kInvalid: a server's file is not there, which no repetition will change for
/// long.
io::awaitable<Result<void>> seal_checkpoint(VolumeClient& volume, std::string folder,
                                            io::Manifest manifest);

/// Removes all whole checkpoints but the newest `keep`, and what was given up before the newest.
io::awaitable<Result<void>> prune_checkpoints(VolumeClient& volume, std::string folder,
                                              std::size_t keep);

}  // namespace dt::supervisor
