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

}  // namespace dt::preflight
