/// Which copy between the host's memory and several devices starts next. Pure.
///
/// The more urgent first; of the equally urgent, values before sums, which end operations, and then
/// in turn. What is not ready holds nothing up; what is ready and has no room holds up the others
/// of its kind. Copies of other devices wait until no copy is under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace dt::kv {

class ReplicaOrder {
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
    std::size_t offset = 0;  ///< Of a sum: where it is added up in each device's scratch memory.
  };

  /// Sums that are under way share `window` bytes of scratch memory, and so many bytes of values
  /// are under way; a larger copy is under way without others of its kind.
  explicit ReplicaOrder(std::size_t window) : window_(window) {}

  Id add(Item item);
  void set_ready(Id id);
  /// The next one, which is under way now; none: nothing can start before something ends.
  std::optional<Start> next();
  /// One that is under way or waits.
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
  std::map<Id, Rank> ranks_;  ///< Of waiting_.
  std::map<Id, UnderWay> under_way_;
  std::map<std::size_t, std::size_t> scratch_;  ///< Bytes by offset.
  std::size_t value_bytes_ = 0;
};

}  // namespace dt::kv
