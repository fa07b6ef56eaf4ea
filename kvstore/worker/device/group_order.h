/// Which copy between host memory and several devices starts next. Pure.
///
/// By priority; within a priority values before sums, since values end operations, then in order of
/// arrival. A copy that is not ready delays no other; one that is ready and has no room delays the
/// later ones of its kind (value or sum). Copies of another set of devices wait until no copy is
/// under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace dt::kv {

class GroupOrder {
 public:
  using Id = std::uint64_t;
  struct Item {
    bool is_sum = false;
    int priority = 0;
    std::size_t bytes = 0;
    std::vector<int> devices;
  };
  struct Start {
    Id id = 0;
    std::size_t offset = 0;  ///< For a sum: its offset in each device's scratch memory.
  };

  /// Sums under way share `window` bytes of scratch memory; at most `window` bytes of values are
  /// under way. A larger copy is under way without others of its kind.
  explicit GroupOrder(std::size_t window) : window_(window) {}

  Id add(Item item);
  void set_ready(Id id);
  /// Starts the next copy; none: no copy can start now.
  std::optional<Start> next();
  /// Removes a copy that is under way or waits.
  void remove(Id id);
  [[nodiscard]] bool is_under_way() const { return !under_way_.empty(); }

 private:
  using Rank = std::tuple<int, bool, Id>;  ///< -priority, is_sum, id.
  struct Waiting {
    Item item;
    bool is_ready = false;
  };
  struct UnderWay {
    Item item;
    std::size_t offset = 0;
  };
  [[nodiscard]] std::optional<std::size_t> room_for(const Item& item) const;

  std::size_t window_;
  Id last_ = 0;
  std::map<Rank, Waiting> waiting_;
  std::map<Id, Rank> ranks_;  ///< Keys of waiting_.
  std::map<Id, UnderWay> under_way_;
  std::map<std::size_t, std::size_t> scratch_;  ///< Bytes by offset.
  std::size_t value_bytes_ = 0;
};

}  // namespace dt::kv
