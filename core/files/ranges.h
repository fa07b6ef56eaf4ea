/// Many numbers or hosts in few words, for people: 0-15,17 and node[01-16,18]. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/files/hosts.h"

namespace dt {

/// "0-15,17": the numbers in ascending order, each once; empty for none.
[[nodiscard]] std::string fold_numbers(std::vector<std::uint64_t> numbers);

/// Words of the hosts grammar, which parse_hosts() expands to the same hosts: each once, those with
/// the same user and port beside each other, numbers in names in ascending order. One number of a
/// name becomes a range; names that differ in two are words of their own.
[[nodiscard]] std::vector<std::string> fold_hosts(std::vector<Host> hosts);
/// The same in one text: "h[1-3],n7".
[[nodiscard]] std::string in_few_words(std::vector<Host> hosts);

}  // namespace dt
