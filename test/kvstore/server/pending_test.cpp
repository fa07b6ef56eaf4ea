#include "kvstore/server/pending.h"

#include "kvstore/worker/key_table.h"
#include "test/kvstore/server/shard_bench.h"

using namespace dt;
using namespace dt::kv;
using namespace dt::test;

namespace {

data::Header init_header(std::uint32_t worker, std::uint32_t chunk) {
  data::Header header;
  header.type = data::Type::kInit;
  header.worker = WorkerId(worker);
  header.chunk = chunk;
  header.samples = kElements;
  return header;
}

Payload some_values() { return ShardBench::bytes(std::vector<float>(kElements, 7)); }

data::Header register_header(std::uint32_t worker) {
  data::Header header;
  header.type = data::Type::kRegister;
  header.worker = WorkerId(worker);
  return header;
}

Payload keys(const std::string& name) {
  data::RegisterKeys wanted;
  wanted.keys.push_back({name, kElements, data::Dtype::kFloat32, 0});
  return Payload(wire::body_of(wanted));
}

/// Sends the same kind of request until one is refused; how many were not.
template <class Say>
std::size_t until_refused(ShardBench& bench, Say say) {
  constexpr std::size_t kTooMany = 3'000;
  for (std::size_t n = 0; n < kTooMany; ++n) {
    bench.take();
    say(static_cast<std::uint32_t>(n));
    if (bench.answers.empty()) continue;
    CHECK(ShardBench::code(bench.answers.at(0)) == data::Code::kInvalid);
    CHECK(bench.take().at(0).payload.find("wait") != std::string::npos);
    return n;
  }
  return kTooMany;
}

}  // namespace

TEST_CASE("pending: a worker that may not give values is asked for them when it may", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1});
  bench.say(init_header(1, 0), some_values());
  CHECK(bench.take().empty());
  bench.commit(2, {1});
  CHECK(bench.take().at(0).header.type == data::Type::kNeedValues);
  bench.say(init_header(1, 0), some_values());
  CHECK(bench.take().at(0).header.type == data::Type::kDone);
  CHECK(bench.value() == 7);
}

TEST_CASE("pending: whatever a worker sends, what waits for others is bounded", "[shard]") {
  ShardOptions options = ShardBench::options();
  options.pending.worker_bytes = 20'000;
  options.pending.all_bytes = 50'000;
  ShardBench bench(options);
  bench.commit(1, {0, 1});
  const std::string long_name(1000, 'n');
  const auto inits = [&](std::uint32_t worker) {
    return until_refused(
        bench, [&](std::uint32_t n) { bench.say(init_header(worker, n), some_values()); });
  };
  const auto registers = [&](std::uint32_t worker) {
    return until_refused(bench, [&](std::uint32_t n) {
      bench.say(register_header(worker), keys(long_name + std::to_string(n % 10)));
    });
  };
  const auto optimizers = [&](std::uint32_t worker) {
    return until_refused(bench, [&](std::uint32_t) { bench.set_optimizer(worker, "sgd"); });
  };
  const std::size_t of_one = inits(1);
  CHECK(of_one > 50);
  CHECK(of_one < 200);
  CHECK(registers(2) >= 10);  // one worker's share does not limit the others
  CHECK(optimizers(3) >= 10);
  CHECK(inits(5) <= 1);  // the few bytes by which an optimizer's frame is longer
  CHECK(inits(4) == 0);  // now there is no room left
  bench.shard_.disconnect(WorkerId(3));
  CHECK(inits(4) > 10);
  // Answering pending requests makes room.
  for (std::uint32_t n = 0; n < of_one; ++n) bench.say(init_header(0, n), some_values());
  bench.take();
  CHECK(until_refused(bench, [&](std::uint32_t n) {
          bench.say(init_header(1, 1'000'000 + n), some_values());
        }) == of_one);
}

TEST_CASE("pending: what waited is answered once, a worker's that is gone not at all", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1});
  for (const std::uint32_t worker : {1u, 7u}) {
    bench.say(register_header(worker), keys("w"));
    bench.say(init_header(worker, 0));
  }
  bench.shard_.disconnect(WorkerId(7));
  CHECK(bench.take().empty());
  bench.say(register_header(0), keys("w"));
  bench.say(init_header(0, 0), some_values());
  const auto answers = bench.take();
  REQUIRE(answers.size() == 4);
  for (const auto& answer : answers) {
    CHECK(answer.header.type == data::Type::kDone);
    CHECK(answer.to != WorkerId(7));
  }
  bench.commit(2, {0, 1, 7}, 1);
  CHECK(bench.take().empty());
}

TEST_CASE("keys: what no key can be is refused, and nobody learns of it", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0});
  const auto asks = [&](std::uint64_t count, int dtype, std::uint8_t flags) {
    data::RegisterKeys wanted;
    wanted.keys.push_back({"w", count, static_cast<data::Dtype>(dtype), flags});
    bench.say(register_header(0), Payload(wire::body_of(wanted)));
    return bench.take().at(0);
  };
  for (const int dtype : {2, 3, 5, 99, 255})
    CHECK(ShardBench::code(asks(3, dtype, 0)) == data::Code::kInvalid);
  CHECK(ShardBench::code(asks(3, 0, 0x82)) == data::Code::kInvalid);
  CHECK(ShardBench::code(asks(~std::uint64_t{0}, 0, 0)) == data::Code::kInvalid);
  CHECK(ShardBench::code(asks(std::uint64_t{1} << 40, 0, 0)) == data::Code::kInvalid);
  const auto good = asks(3, 0, 0);
  REQUIRE(good.header.type == data::Type::kDone);
  CHECK(wire::parse<data::KeyTable>(good.payload)->keys.size() == 1);
}

TEST_CASE("keys: a worker does not take over a table with what no key can be", "[shard]") {
  KeyTable keys(4096);
  const KeyTable::Owners owners(1, std::vector<ServerLink*>(1, nullptr));
  for (const auto& bad : {data::KeySpec{"w", 3, static_cast<data::Dtype>(99), 0},
                          data::KeySpec{"w", ~std::uint64_t{0}, data::Dtype::kFloat32, 0}}) {
    data::KeyTable table;
    table.keys.push_back(bad);
    const auto learnt = keys.learn(table, owners);
    REQUIRE_FALSE(learnt);
    CHECK(learnt.error().kind == ErrorKind::kProtocol);
  }
}

TEST_CASE("keys: what was not set up is named again", "[shard]") {
  KeyTable keys(4096);
  const KeyTable::Owners owners(1, std::vector<ServerLink*>(1, nullptr));
  data::KeyTable table;
  const auto learns = [&](const char* name) {
    table.keys.push_back({name, 3, data::Dtype::kFloat32, 0});
    return keys.learn(table, owners).value().size();
  };
  CHECK(learns("a") == 1);
  CHECK(learns("b") == 2);
  keys.settled();
  CHECK(keys.learn(table, owners).value().empty());
  CHECK(learns("c") == 1);
}

TEST_CASE("pending: the key table stays small enough to be told", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0});
  const std::string long_name(std::size_t{16} << 20, 'n');
  std::size_t taken = 0;
  for (; taken < 20; ++taken) {
    bench.take();
    bench.say(register_header(0), keys(long_name + std::to_string(taken)));
    const auto answer = bench.take().at(0);
    if (answer.header.type == data::Type::kFailed) break;
    REQUIRE(answer.header.payload <= data::kMaxPayload);
  }
  CHECK(taken == 3);
}

TEST_CASE("pending: no optimizer needs a long text", "[shard]") {
  ShardBench bench;
  data::Header header;
  header.type = data::Type::kSetOptimizer;
  header.payload = 4096;
  CHECK(bench.shard_.check(header));
  header.payload = 4097;
  CHECK_FALSE(bench.shard_.check(header));
}
