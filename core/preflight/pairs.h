/// Which hosts of a check talk to which. Hosts are numbers from 0. Pure.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace dt::preflight {

using Pair = std::pair<std::size_t, std::size_t>;

/// So many connections are made at most, where each host tries each server host.
inline constexpr std::size_t kMostPairs = 4096;

/// From each of `from` to each of `to`, itself left out. Where that is more than kMostPairs, each
/// of `from` tries the one of `to` behind it and three more, which differ from host to host, so
/// that each of `to` is tried.
[[nodiscard]] std::vector<Pair> pairs_to_try(const std::vector<std::size_t>& from,
                                             const std::vector<std::size_t>& to);

/// The pairs of neighbours in a ring of `count` hosts, in rounds in which each host is in one pair
/// at most.
[[nodiscard]] std::vector<std::vector<Pair>> ring_rounds(std::size_t count);

/// Rounds, as above, in which each of `suspects` meets one of `others` that is no neighbour of it
/// in the ring, or at least another host than itself.
[[nodiscard]] std::vector<std::vector<Pair>> second_partners(
    const std::vector<std::size_t>& suspects, const std::vector<std::size_t>& others,
    std::size_t count);

}  // namespace dt::preflight
