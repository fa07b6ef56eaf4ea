/// The limit of a data-plane process's descriptors, and the number of a server's event loops for
/// which they suffice.
#pragma once

#include <cstdint>
#include <string>

namespace dt::kv {

/// Raises this process's soft limit to the hard one, which is returned.
std::uint64_t raise_descriptor_limit();

/// Number of event loops of a server in a job of `workers`, each of which may connect to each loop:
/// one per core, at most 8, and no more than 4096 connections.
[[nodiscard]] std::uint32_t loops_for(std::uint32_t workers, std::uint32_t cores);

/// An error with the remedy if a server with `loops` and `workers` needs more descriptors than
/// `limit`; empty: they suffice.
[[nodiscard]] std::string lacking_descriptors(std::uint64_t limit, std::uint32_t workers,
                                              std::uint32_t loops);

}  // namespace dt::kv
