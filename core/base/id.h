/// Strong identifiers: a Rank cannot be passed where a WorkerId is wanted.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace dt {

/// An integer that only compares with its own kind.
template <class Tag, class Rep>
struct Id {
  using rep = Rep;
  Rep value{};

  constexpr Id() = default;
  constexpr explicit Id(Rep v) : value(v) {}
  friend constexpr auto operator<=>(Id, Id) = default;
  [[nodiscard]] constexpr Id next() const { return Id(static_cast<Rep>(value + 1)); }
};

using WorkerId = Id<struct WorkerTag, std::uint32_t>;        ///< Given once, never reused.
using ServerId = Id<struct ServerTag, std::uint32_t>;        ///< Given once, never reused.
using Rank = Id<struct RankTag, std::uint32_t>;              ///< Dense 0..N-1 in a view.
using Generation = Id<struct GenerationTag, std::uint64_t>;  ///< Rises with every change.
using Term = Id<struct TermTag, std::uint64_t>;              ///< A supervisor's life.
using Epoch = Id<struct EpochTag, std::uint32_t>;            ///< One pass over the data.
using Round = Id<struct RoundTag, std::uint64_t>;            ///< One synchronous update of a chunk.
using KeyId = Id<struct KeyTag, std::uint32_t>;              ///< Index of a key by registration.
using Edit = Id<struct EditTag, std::uint64_t>;              ///< An accepted host_worker content.

}  // namespace dt

template <class Tag, class Rep>
struct std::hash<dt::Id<Tag, Rep>> {
  std::size_t operator()(dt::Id<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value); }
};

template <class Tag, class Rep>
struct fmt::formatter<dt::Id<Tag, Rep>> : fmt::formatter<Rep> {
  auto format(dt::Id<Tag, Rep> id, format_context& ctx) const {
    return fmt::formatter<Rep>::format(id.value, ctx);
  }
};
