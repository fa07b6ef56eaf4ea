/// A job's checkpoints on the shared volume: makes one count when its files are there, and lets the
/// oldest go.
#pragma once

#include <string>

#include "io/awaitable.h"
#include "io/job/checkpoint_manifest.h"

namespace dt::supervisor {

class VolumeClient;

/// Writes the manifest and renames the folder. Repeating it, after a crash or a deadline, is
/// harmless. Replaces a checkpoint of that epoch with a lower generation, from before a rollback.
/// kInvalid if a server's file is missing, which repetition will not change, or if there is a
/// checkpoint of a higher generation.
io::awaitable<Result<void>> seal_checkpoint(VolumeClient& volume, std::string folder,
                                            io::Manifest manifest);

/// Removes the folders of io::outdated_checkpoints; `newest` is the current checkpoint.
io::awaitable<Result<void>> prune_checkpoints(VolumeClient& volume, std::string folder,
                                              std::size_t keep, Epoch newest);

}  // namespace dt::supervisor
