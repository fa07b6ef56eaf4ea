#include "kvstore/server/key_sets.h"

#include "test/support/catch.h"

using namespace dt;
using namespace dt::kv;

TEST_CASE("key sets: each worker is compared with the first, at the first boundary alone",
          "[key-sets]") {
  KeySets sets;
  const WorkerId first(3);
  const WorkerId equal(1);
  const WorkerId poor(7);
  const WorkerId silent(8);
  for (const std::uint32_t key : {0U, 2U, 5U})
    for (const WorkerId worker : {first, equal}) sets.add(worker, KeyId(key));
  sets.add(poor, KeyId(0));
  sets.add(poor, KeyId(4));
  CHECK(sets.lack_of(poor, first) == KeyId(2));
  CHECK_FALSE(sets.lack_of(equal, first));
  CHECK_FALSE(sets.lack_of(silent, first));
  CHECK_FALSE(sets.lack_of(poor));  // it may still initialise it
  sets.arrive(first);
  CHECK(sets.has_arrived(first));
  sets.end_epoch({first, equal, poor, silent});
  CHECK_FALSE(sets.has_arrived(first));
  REQUIRE(sets.lack_of(poor));
  CHECK(sets.lack_of(poor)->key == KeyId(2));
  CHECK(sets.lack_of(poor)->first == first);
  CHECK_FALSE(sets.lack_of(equal));
  CHECK_FALSE(sets.lack_of(first));
  CHECK_FALSE(sets.lack_of(silent));
  sets.add(first, KeyId(9));  // a later key
  sets.end_epoch({first, equal});
  CHECK_FALSE(sets.lack_of(equal));
}
