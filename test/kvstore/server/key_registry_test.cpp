#include "kvstore/server/key_registry.h"

#include <algorithm>

#include "test/support/catch.h"

using namespace dt;
using namespace dt::kv;

namespace {

Members members_of(std::vector<std::uint32_t> workers) {
  ServerCommit commit;
  commit.generation = Generation(1);
  for (const auto worker : workers) commit.contributors.emplace_back(worker);
  Members members;
  members.apply(commit);
  return members;
}

data::KeySpec key(const std::string& name, std::uint64_t count = 3, std::uint8_t flags = 0) {
  return {name, count, data::Dtype::kFloat32, flags};
}

std::string error_of(const tl::expected<bool, data::Failure>& added, data::Code code) {
  REQUIRE_FALSE(added);
  CHECK(added.error().code == code);
  return added.error().message;
}

}  // namespace

TEST_CASE("key registry: the first worker creates keys, the others wait for it", "[keys]") {
  const auto members = members_of({4, 2});
  KeyRegistry keys;
  CHECK(keys.add({0, {key("a")}}, WorkerId(2), members, false) == false);
  CHECK(keys.keys().empty());
  CHECK(keys.add({0, {key("a"), key("b")}}, WorkerId(4), members, false) == true);
  CHECK(keys.add({0, {key("a")}}, WorkerId(2), members, false) == true);
  CHECK(keys.add({0, {key("a"), key("c")}}, WorkerId(7), members, false) == false);  // a newcomer
  CHECK(keys.table(0).keys == keys.keys());
  CHECK(keys.table(1).from == 1);
  CHECK(keys.table(1).keys == std::vector{key("b")});
  CHECK(keys.table(9).from == 2);
  CHECK(keys.table(9).keys.empty());
}

TEST_CASE("key registry: a key is one thing, and its creator is named", "[keys]") {
  const auto members = members_of({4, 2});
  KeyRegistry keys;
  keys.restore({key("old", 8)});
  REQUIRE(keys.add({0, {key("new", 3, data::kAuxiliary)}}, WorkerId(4), members, false));
  CHECK(
      error_of(keys.add({0, {key("new")}}, WorkerId(2), members, false), data::Code::kMismatch) ==
      "key 'new' has 3 elements of float32, auxiliary, from worker 4; worker 2 wants 3 elements of "
      "float32");
  CHECK(error_of(keys.add({0, {key("old")}}, WorkerId(4), members, false), data::Code::kMismatch) ==
        "key 'old' has 8 elements of float32; worker 4 wants 3 elements of float32");
}

TEST_CASE("key registry: the table stays small enough, whoever made its keys", "[keys]") {
  const auto members = members_of({0});
  const std::string long_name(std::size_t{8} << 20, 'n');
  std::vector<data::KeySpec> old;
  for (int i = 0; i < 4; ++i) old.push_back(key(long_name + std::to_string(i)));
  KeyRegistry keys;
  keys.restore(old);
  for (int i = 4; i < 7; ++i)
    CHECK(keys.add({0, {key(long_name + std::to_string(i))}}, WorkerId(0), members, false));
  CHECK(error_of(keys.add({0, {key(long_name + "7")}}, WorkerId(0), members, false),
                 data::Code::kInvalid)
            .ends_with("too many keys or elements, or too long names"));
  CHECK(keys.keys().size() == 7);
  CHECK(wire::body_of(keys.table(0)).size() < data::kMaxPayload);
}

TEST_CASE("key registry: a key that the first worker cannot create any more is refused", "[keys]") {
  const auto members = members_of({4, 2});
  KeyRegistry keys;
  REQUIRE(keys.add({0, {key("a"), key("b")}}, WorkerId(4), members, false));
  const data::RegisterKeys wanted{0, {key("a"), key("c")}};
  CHECK(keys.add(wanted, WorkerId(2), members, false) == false);
  CHECK(error_of(keys.add(wanted, WorkerId(2), members, true), data::Code::kMismatch) ==
        "key 'c': worker 2 initialises it, and worker 4, which has rank 0, waits at the barrier "
        "without it; it has 'b', which worker 2 has not: all workers initialise the same keys");
  CHECK(keys.add(wanted, WorkerId(7), members, true) == false);  // nobody waits for a newcomer
  keys.arrive(WorkerId(4));
  CHECK(error_of(keys.add(wanted, WorkerId(2), members, false), data::Code::kMismatch)
            .find("waits at the epoch boundary without it") != std::string::npos);
  CHECK(keys.lack_of(WorkerId(2)).empty());
  keys.end_epoch({WorkerId(4), WorkerId(2)});
  CHECK(keys.lack_of(WorkerId(2)) ==
        "key 'b': worker 4, which had rank 0, has initialised it before the first epoch boundary, "
        "and worker 2 has not: all workers initialise the same keys");
  CHECK(keys.lack_of(WorkerId(4)).empty());
  CHECK(keys.add(wanted, WorkerId(2), members, false) == false);  // the next epoch
}

TEST_CASE("key registry: each worker is compared with the first, at the first boundary alone",
          "[keys]") {
  const WorkerId first(3);
  const WorkerId equal(1);
  const WorkerId poor(7);
  const WorkerId silent(8);
  const auto members = members_of({3, 1, 7, 8});
  KeyRegistry keys;
  const auto add = [&](WorkerId worker, const std::vector<data::KeySpec>& wanted) {
    REQUIRE(keys.add({0, wanted}, worker, members, false));
  };
  add(first, {key("a"), key("sums", 3, data::kAuxiliary), key("b"), key("c")});
  add(equal, {key("c"), key("a"), key("b")});
  add(poor, {key("a"), key("sums", 3, data::kAuxiliary)});
  CHECK(keys.lack_of(poor).empty());  // it may still initialise it
  keys.end_epoch({first, equal, poor, silent});
  CHECK(keys.lack_of(poor).starts_with("key 'b': worker 3, which had rank 0,"));
  for (const WorkerId worker : {first, equal, silent}) CHECK(keys.lack_of(worker).empty());
  add(first, {key("later")});
  keys.end_epoch({first, equal});
  CHECK(keys.lack_of(equal).empty());
}
