/// How many descriptors a process of the data plane may have, and how many event loops a server has
/// so that they suffice.
#pragma once

#include <cstdint>
#include <string>

namespace dt::kv {

/// Raises this process's soft limit to the hard one, which is returned.
std::uint64_t raise_descriptor_limit();

/// Cores that this process may use, at least 1.
[[nodiscard]] std::uint32_t usable_cores();

/// Event loops of a server of a job of `workers`, each of which may connect to each loop: one per
/// core, at most 8, and no more than 4096 connections.
[[nodiscard]] std::uint32_t loops_for(std::uint32_t workers, std::uint32_t cores);

/// What a server with `loops` for `workers` lacks, with the remedy; empty: `limit` is enough.
[[nodiscard]] std::string lacking_descriptors(std::uint64_t limit, std::uint32_t workers,
                                              std::uint32_t loops);

}  // namespace dt::kv
