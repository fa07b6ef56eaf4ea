// The order of copies between the host and several devices.

#include "kvstore/worker/device/group_order.h"

#include "test/support/catch.h"

using dt::kv::GroupOrder;

namespace group_order_tests {

constexpr std::size_t kWindow = 4096;
const std::vector<int> kBoth = {0, 1};

GroupOrder::Id ready(GroupOrder& order, GroupOrder::Item item) {
  if (item.devices.empty()) item.devices = kBoth;
  const auto id = order.add(std::move(item));
  order.set_ready(id);
  return id;
}

/// The copies that start now.
std::vector<GroupOrder::Id> starts(GroupOrder& order) {
  std::vector<GroupOrder::Id> ids;
  while (const auto start = order.next()) ids.push_back(start->id);
  return ids;
}

using Ids = std::vector<GroupOrder::Id>;

TEST_CASE("group order: by priority, values before sums, then in turn", "[group-order]") {
  GroupOrder order(kWindow);
  const auto sum = ready(order, {true, 0, 100, {}});
  const auto value = ready(order, {false, 0, 100, {}});
  const auto urgent = ready(order, {true, 5, 100, {}});
  const auto later = ready(order, {true, 0, 100, {}});
  CHECK(starts(order) == Ids{urgent, value, sum, later});
}

TEST_CASE("group order: what is not ready holds nothing up", "[group-order]") {
  GroupOrder order(kWindow);
  const auto late = order.add({true, 9, 100, kBoth});
  const auto other = ready(order, {true, 0, 100, {}});
  CHECK(starts(order) == Ids{other});
  order.set_ready(late);
  CHECK(starts(order) == Ids{late});
}

TEST_CASE("group order: sums that are under way have scratch memory of their own",
          "[group-order]") {
  GroupOrder order(kWindow);
  std::vector<GroupOrder::Start> under_way;
  const auto start = [&](std::size_t bytes) {
    (void)ready(order, {true, 0, bytes, {}});
    const auto next = order.next();
    if (next) under_way.push_back(*next);
    return next ? static_cast<int>(next->offset) : -1;
  };
  CHECK(start(1000) == 0);
  CHECK(start(1000) == 1024);
  CHECK(start(2000) == 2048);
  CHECK(start(1) == -1);  // full
  order.remove(under_way[1].id);
  const auto next = order.next();
  REQUIRE(next);
  CHECK(next->offset == 1024);
  CHECK(start(1024) == -1);  // too large for the gap
  order.remove(under_way[0].id);
  CHECK(order.next()->offset == 0);
}

TEST_CASE("group order: what has no room is not overtaken by its kind, and holds up no other",
          "[group-order]") {
  GroupOrder order(kWindow);
  const auto first = ready(order, {true, 0, 3000, {}});
  const auto large = ready(order, {true, 0, 2000, {}});
  const auto small = ready(order, {true, 0, 10, {}});
  const auto value = ready(order, {false, -1, 4000, {}});
  const auto no_room = ready(order, {false, -1, 4000, {}});
  CHECK(starts(order) == Ids{first, value});
  order.remove(first);
  CHECK(starts(order) == Ids{large, small});
  order.remove(value);
  CHECK(starts(order) == Ids{no_room});
}

TEST_CASE("group order: more than the window is under way alone", "[group-order]") {
  GroupOrder order(kWindow);
  const auto small = ready(order, {true, 1, 10, {}});
  const auto huge = ready(order, {true, 0, 9000, {}});
  CHECK(starts(order) == Ids{small});
  order.remove(small);
  CHECK(starts(order) == Ids{huge});
  const auto next = ready(order, {true, 0, 10, {}});
  CHECK(starts(order).empty());
  order.remove(huge);
  CHECK(starts(order) == Ids{next});
}

TEST_CASE("group order: other devices wait for those that are under way", "[group-order]") {
  GroupOrder order(kWindow);
  const auto first = ready(order, {true, 0, 10, kBoth});
  const auto others = ready(order, {true, 0, 10, {1, 2}});
  const auto same = ready(order, {true, 0, 10, kBoth});
  CHECK(starts(order) == Ids{first});
  order.remove(same);  // removed before it began
  order.remove(first);
  CHECK_FALSE(order.is_under_way());
  CHECK(starts(order) == Ids{others});
}

}  // namespace group_order_tests
