/// Chunks on a device: they have the same bits as on the host, whatever happens in a round. Also
/// the device running out of memory or breaking. The device is the emulated one.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "kvstore/compute/compression.h"
#include "kvstore/compute/device_engine.h"
#include "test/kvstore/server/shard_bench.h"
#include "test/support/emulated_device/emulated_device.h"
#include "test/support/emulated_device/machine.h"

using namespace dt;
using namespace dt::kv;
using namespace dt::test;

namespace {

ShardOptions on_device(ShardOptions options) {
  options.device = DeviceEngine::open(0).value();
  return options;
}
ShardOptions on_host(ShardOptions options) {
  options.device = nullptr;
  return options;
}

/// Bytes with every NaN the same: which one results is left open.
std::string without_nans(data::Dtype dtype, std::string bytes) {
  const auto clean = [&bytes](auto sample) {
    using T = decltype(sample);
    for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
      T value{};
      std::memcpy(&value, bytes.data() + at, sizeof value);
      if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
      std::memcpy(bytes.data() + at, &value, sizeof value);
    }
  };
  if (dtype == data::Dtype::kFloat32) clean(0.0F);
  if (dtype == data::Dtype::kFloat64) clean(0.0);
  return bytes;
}

std::string text_of(const std::shared_ptr<const Payload>& array) {
  if (!array) return "none";
  if (array->memory() != Memory::kDevice) return std::string(array->text());
  const auto fetched = DeviceEngine::fetch(0, {array.get()});
  REQUIRE(fetched);
  return std::string((*fetched)[0]->text());
}

/// A few rounds of a chunk, drawn from a seed.
class Script {
 public:
  explicit Script(std::uint64_t seed) : random_(seed) {
    constexpr data::Dtype kDtypes[] = {data::Dtype::kFloat32, data::Dtype::kFloat32,
                                       data::Dtype::kFloat64, data::Dtype::kInt64};
    constexpr std::size_t kLengths[] = {0, 1, 3, 17, 1000, 4099};
    const char* const optimizers[] = {"",
                                      "",
                                      "sgd",
                                      "sgd momentum=0.9 weight_decay=0.01",
                                      "sgd momentum=0.9 nesterov=1",
                                      "adam",
                                      "adamw weight_decay=0.1"};
    dtype_ = kDtypes[draw(4)];
    elements_ = kLengths[draw(6)];
    workers_ = 1 + draw(draw(4) == 0 ? 20 : 4);
    is_auxiliary_ = draw(6) == 0;
    is_async_ = draw(5) == 0;
    options_ = ShardBench::options(draw(3) == 0);
    options_.refuse_nonfinite = draw(6) == 0;
    optimizer_ = optimizers[draw(7)];
    if (is_compressible(dtype_, is_auxiliary_) && draw(2) == 0)
      codec_ = static_cast<data::Codec>(1 + draw(3));
    reduce_ = static_cast<data::Reduce>(draw(6) == 0 ? 1 + draw(2) : 0);
    keeps_answers_ = draw(2) == 0;
  }

  [[nodiscard]] std::string describe() const {
    return fmt::format("{} elements of {}, {} workers, '{}', {}{}{}{}", elements_, name_of(dtype_),
                       workers_, optimizer_, name_of(codec_), is_async_ ? ", async" : "",
                       options_.deterministic ? ", deterministic" : "",
                       is_auxiliary_ ? ", auxiliary" : "");
  }

  /// Its observable results: answers, memory of workers, saved values.
  std::vector<std::string> run(bool uses_device) {
    class Keeper : public Answers {
     public:
      void answer(WorkerId to, const data::Header& header,
                  std::shared_ptr<const Payload> payload) override {
        const std::string text = payload ? std::string(payload->text()) : "nothing";
        const bool is_value = header.type == data::Type::kValue && payload;
        seen.push_back(fmt::format("{} to {}: ", static_cast<int>(header.type), to) +
                       (is_value ? without_nans(dtype, text) : text));
        if (keeps) kept.push_back(std::move(payload));
      }
      data::Dtype dtype{};
      bool keeps = false;
      std::vector<std::shared_ptr<const Payload>> kept;
      std::vector<std::string> seen;
    } keeper;
    keeper.dtype = dtype_;
    keeper.keeps = keeps_answers_;
    Shard shard(uses_device ? on_device(options_) : on_host(options_), keeper);
    std::mt19937_64 random = random_;
    std::swap(random, random_);  // both runs draw the same
    ServerCommit commit;
    commit.generation = Generation(1);
    for (std::uint32_t w = 0; w < workers_; ++w) commit.contributors.push_back(WorkerId(w));
    shard.commit(commit, Time{});
    begin(shard);
    SavedLoop before;
    for (std::uint64_t round = 1; round <= 5; ++round) {
      play(shard, round, keeper);
      if (round == 3) {  // the saved values do not change afterwards
        commit.generation = commit.generation.next();
        generation_ = commit.generation;
        shard.commit(commit, Time{}, &before);
      }
    }
    SavedLoop after;
    commit.generation = commit.generation.next();
    shard.commit(commit, Time{}, &after);
    for (const auto& saved : {before, after})
      for (const auto& chunk : saved.chunks) {
        keeper.seen.push_back("saved " + std::to_string(chunk.updates));
        for (const auto& array : chunk.arrays)
          keeper.seen.push_back(without_nans(dtype_, text_of(array)));
      }
    keeper.seen.push_back("nonfinite " + std::to_string(shard.nonfinite()));
    std::swap(random, random_);
    generation_ = Generation(1);
    return keeper.seen;
  }

 private:
  struct Worker {
    std::vector<std::byte> in;
    std::vector<std::byte> out;
    GradientEncoder encoder;
  };

  std::uint32_t draw(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }

  std::vector<std::byte> numbers() {
    std::vector<std::byte> bytes(elements_ * data::element_bytes(dtype_));
    const auto put = [&](auto make) {
      for (std::size_t i = 0; i < elements_; ++i) {
        const auto value = make();
        std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
      }
    };
    const auto number = [&] {
      const double value = (static_cast<double>(draw(2001)) - 1000) / 300;
      return draw(500) == 0 ? std::numeric_limits<double>::infinity() : value;
    };
    if (dtype_ == data::Dtype::kFloat32)
      put([&] { return static_cast<float>(number()); });
    else if (dtype_ == data::Dtype::kFloat64)
      put(number);
    else
      put([&] { return static_cast<std::int64_t>(random_()); });
    return bytes;
  }

  static Payload payload_of(const std::vector<std::byte>& bytes) {
    return Payload(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

  void begin(Shard& shard) {
    data::Header header;
    header.type = data::Type::kSetOptimizer;
    if (!optimizer_.empty()) shard.handle(header, Payload(optimizer_), Time{});
    header.type = data::Type::kInit;
    header.dtype = dtype_;
    header.samples = elements_;
    header.flags = is_auxiliary_ ? data::kAuxiliary : 0;
    shard.handle(header, payload_of(numbers()), Time{});
  }

  template <class Keeper>
  void play(Shard& shard, std::uint64_t round, Keeper& keeper) {
    std::vector<std::uint32_t> order(workers_);
    for (std::uint32_t w = 0; w < workers_; ++w) order[w] = w;
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<Worker> workers(workers_);
    const float rate = 0.25F;
    for (const std::uint32_t w : order) {
      Worker& worker = workers[w];
      worker.in = numbers();
      worker.out.assign(worker.in.size(), std::byte{7});
      data::Header header;
      header.type = draw(4) == 0 ? data::Type::kPush : data::Type::kPushPull;
      header.dtype = dtype_;
      header.reduce = reduce_;
      header.worker = WorkerId(w);
      header.round = Round(round);
      header.generation = generation_;
      header.samples = draw(3) == 0 ? draw(5) : 8;
      header.learning_rate = draw(60) == 0 ? 0.5F : rate;
      header.flags = is_async_ ? data::kAsync : 0;
      const auto* gradient = reinterpret_cast<const float*>(worker.in.data());
      const bool shares = codec_ == data::Codec::kNone && draw(2) == 0;
      const bool leaves = draw(5) == 0;
      if (shares) {
        header.flags |= data::kShared;
        SharedBuffers shared;
        if (!worker.in.empty()) shared.in = worker.in.data();
        if (header.type == data::Type::kPushPull && draw(3) > 0) shared.out = worker.out.data();
        shard.handle(header, {}, Time{}, shared);
      } else if (codec_ != data::Codec::kNone) {
        data::set_codec(header, codec_);
        const auto codes =
            worker.encoder.encode({codec_, 0.5F}, gradient, elements_, header.samples > 0);
        Payload payload = shard.take(header);
        payload =
            Payload(std::string_view(reinterpret_cast<const char*>(codes.data()), codes.size()));
        shard.handle(header, std::move(payload), Time{});
      } else {
        header.payload = static_cast<std::uint32_t>(worker.in.size());
        Payload payload = shard.take(header);
        if (!worker.in.empty()) std::memcpy(payload.data(), worker.in.data(), worker.in.size());
        shard.handle(header, std::move(payload), Time{});
      }
      if (!leaves) continue;
      shard.disconnect(WorkerId(w));
      std::fill(worker.in.begin(), worker.in.end(), std::byte{1});  // its memory is its own again
    }
    for (const auto& worker : workers)
      keeper.seen.push_back(without_nans(
          dtype_, {reinterpret_cast<const char*>(worker.out.data()), worker.out.size()}));
  }

  std::mt19937_64 random_;
  data::Dtype dtype_{};
  std::size_t elements_ = 0;
  std::uint32_t workers_ = 1;
  bool is_auxiliary_ = false;
  bool is_async_ = false;
  bool keeps_answers_ = false;
  ShardOptions options_;
  std::string optimizer_;
  data::Codec codec_ = data::Codec::kNone;
  data::Reduce reduce_{};
  Generation generation_ = Generation(1);
};

}  // namespace

TEST_CASE("device chunk: the same bits as on the host, whatever happens in a round", "[shard]") {
  for (std::uint64_t seed = 1; seed <= 250; ++seed) {
    Script script(seed);
    INFO("seed " << seed << ": " << script.describe());
    const auto host = script.run(false);
    const auto device = script.run(true);
    REQUIRE(device.size() == host.size());
    for (std::size_t i = 0; i < host.size(); ++i) {
      const bool is_same = device[i] == host[i];
      INFO("line " << i << ": " << host[i].substr(0, 300) << " and " << device[i].substr(0, 300));
      REQUIRE(is_same);
    }
  }
}

TEST_CASE("device chunk: rounds are computed by the device, one launch completes them", "[shard]") {
  emulated::restart();
  ShardBench bench(on_device(ShardBench::options()));
  bench.commit(1, {0, 1, 2});
  bench.init(0, 0);
  bench.set_optimizer(0, "sgd");
  const auto launches = [] {
    emulated::flush();
    return emulated::done().launches;
  };
  CHECK(launches() == 0);
  bench.push(0, 1, 1);
  CHECK(launches() == 0);  // the first one's memory is the sum
  bench.push(1, 1, 1);
  CHECK(launches() == 1);
  bench.push(2, 1, 1);
  CHECK(launches() == 2);
  CHECK(bench.take().size() == 5);
}

TEST_CASE("device chunk: rounds go on in the memory that there is", "[shard]") {
  emulated::restart();
  ShardBench bench(on_device(ShardBench::options()));
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.set_optimizer(0, "adam");
  const auto play = [&](std::uint64_t round) {
    bench.push(0, round, 1);
    bench.push(1, round, 2);
  };
  for (std::uint64_t round = 1; round <= 3; ++round) play(round);
  const auto before = emulated::done();
  for (std::uint64_t round = 4; round <= 9; ++round) play(round);
  CHECK(emulated::done().allocations == before.allocations);
  CHECK(emulated::done().waits_for_all == before.waits_for_all);
}

TEST_CASE("device chunk: a key that does not fit into the device's memory is refused with its size",
          "[shard]") {
  emulated::restart();
  ShardBench bench(on_device(ShardBench::options()));
  bench.commit(1, {0});
  emulated::limit_device_memory(8);
  bench.init(0, 1);
  const auto answers = bench.take();
  REQUIRE(answers.size() == 1);
  CHECK(ShardBench::code(answers[0]) == data::Code::kInvalid);
  const auto& why = answers[0].payload;
  CAPTURE(why);
  CHECK(why.find("chunk 0 of key 0, 3 elements of float32") != std::string::npos);
  CHECK(why.find("CUDA device 0 is out of memory: 12 bytes are needed") != std::string::npos);
  emulated::limit_device_memory(100);
  bench.init(0, 1);
  CHECK(bench.take().at(0).header.type == data::Type::kDone);
  CHECK(bench.value() == 1);
}

TEST_CASE(
    "device chunk: a round that does not fit into the device's memory fails and changes "
    "nothing",
    "[shard]") {
  emulated::restart();
  ShardBench bench(on_device(ShardBench::options()));
  bench.commit(1, {0, 1});
  bench.init(0, 5);
  bench.set_optimizer(0, "adam");
  bench.take();
  emulated::limit_device_memory(GENERATE(12u, 24u, 36u, 48u));  // value, sum, the last, a moment
  bench.push(0, 1, 1);
  bench.push(1, 1, 1);
  auto answers = bench.take();
  REQUIRE(answers.size() == 2);
  for (const auto& answer : answers) {
    CHECK(answer.header.type == data::Type::kFailed);
    CHECK(answer.payload.find("out of memory") != std::string::npos);
  }
  CHECK(bench.value() == 5);
  emulated::limit_device_memory(1000);
  bench.push(0, 2, 1);
  bench.push(1, 2, 1);
  for (const auto& answer : bench.take()) CHECK(answer.header.type == data::Type::kValue);
}

TEST_CASE("device chunk: deterministic keeps only what came out of order", "[shard]") {
  emulated::restart();
  ShardBench bench(on_device(ShardBench::options(true)));
  bench.commit(1, {0, 1, 2, 3, 4, 5, 6, 7});
  bench.init(0, 0);
  bench.take();
  emulated::limit_device_memory(48);  // value, sum, one that waits, the last
  const auto play = [&](std::uint64_t round, const std::vector<std::uint32_t>& order) {
    for (const auto worker : order) bench.push(worker, round, static_cast<float>(1u << worker));
    const auto answers = bench.take();
    REQUIRE(answers.size() == 8);
    for (const auto& answer : answers) {
      CAPTURE(answer.payload);
      REQUIRE(answer.header.type == data::Type::kValue);
      CHECK(ShardBench::floats(answer.payload).at(0) == 255);
    }
  };
  play(1, {0, 1, 2, 3, 4, 5, 6, 7});
  play(2, {1, 0, 3, 2, 5, 4, 7, 6});
  // No round waits for a worker that has finished or was removed.
  bench.finish(0, 0);
  bench.take();
  for (const std::uint32_t worker : {1u, 2u, 3u, 4u, 5u, 6u, 7u}) bench.push(worker, 3, 1);
  auto answers = bench.take();
  REQUIRE(answers.size() == 7);
  for (const auto& answer : answers) CHECK(answer.header.type == data::Type::kValue);
  bench.push(2, 4, 1);
  bench.commit(2, {2, 3, 4, 5, 6, 7});
  for (const std::uint32_t worker : {3u, 4u, 5u, 6u, 7u}) bench.push(worker, 4, 1);
  answers = bench.take();
  REQUIRE(answers.size() == 6);
  for (const auto& answer : answers) CHECK(answer.header.type == data::Type::kValue);
  CHECK(bench.value() == 6);
}

TEST_CASE("device chunk: when the device breaks nothing is answered, and the server is told why",
          "[shard]") {
  emulated::restart();
  {
    std::string why;
    auto options = on_device(ShardBench::options());
    options.on_device_lost = [&why](std::string text) { why = std::move(text); };
    ShardBench bench(options);
    bench.commit(1, {0});
    bench.init(0, 5);
    bench.take();
    emulated::break_devices("unspecified launch failure");
    bench.push(0, 1, 1);
    CHECK(bench.take().empty());
    CHECK(why == "CUDA device 0: unspecified launch failure");
  }
  emulated::break_devices(nullptr);
}

TEST_CASE("device chunk: a checkpoint has what was put on the stream before it", "[shard]") {
  emulated::restart();
  ShardBench bench(on_device(ShardBench::options()));
  bench.commit(1, {0});
  bench.init(0, 7);  // without a round that waits for it
  SavedLoop saved;
  ServerCommit commit;
  commit.generation = Generation(2);
  commit.contributors = {WorkerId(0)};
  bench.shard_.commit(commit, Time{}, &saved);
  REQUIRE(saved.chunks.size() == 1);
  CHECK(text_of(saved.chunks[0].arrays[0]) == std::string(ShardBench::bytes({7, 7, 7}).text()));
}

TEST_CASE(
    "device chunk: a value that a checkpoint holds stays when there is no memory for a gradient",
    "[shard]") {
  emulated::restart();
  ShardBench bench(on_device(ShardBench::options()));
  bench.commit(1, {0});
  bench.init(0, 5);
  SavedLoop saved;
  ServerCommit commit;
  commit.generation = Generation(2);
  commit.contributors = {WorkerId(0)};
  bench.shard_.commit(commit, Time{}, &saved);
  bench.take();
  const auto push = [&](std::uint64_t round) {
    auto header = bench.push_header(0, round, 2);
    header.flags = data::kAsync;
    bench.say(header, ShardBench::bytes({1, 1, 1}));
    return bench.take().at(0);
  };
  emulated::limit_device_memory(12);  // the value
  // The round number is used up, as the code reports; sent again, the push is refused again.
  for (int time = 0; time < 2; ++time) {
    const auto refused = push(1);
    CHECK(ShardBench::code(refused) == data::Code::kMismatch);
    CHECK(refused.payload.find("out of memory") != std::string::npos);
  }
  CHECK(bench.value() == 5);
  CHECK(text_of(saved.chunks[0].arrays[0]) == std::string(ShardBench::bytes({5, 5, 5}).text()));
  emulated::limit_device_memory(1000);
  bench.take();
  CHECK(push(2).header.type == data::Type::kValue);
  CHECK(bench.value() == 6);
  CHECK(text_of(saved.chunks[0].arrays[0]) == std::string(ShardBench::bytes({5, 5, 5}).text()));
}

TEST_CASE("device engine: it computes on its own device, and so does who saves", "[shard]") {
  emulated::restart(2);
  std::string failure;
  float value = 0;
  int place = -1;
  int savers = -1;
  {
    const auto engine = DeviceEngine::open(1).value();
    std::shared_ptr<Payload> ours;
    std::thread([&] {  // a loop's
      engine->begin_thread();
      const float three = 3;
      Payload host(sizeof three);
      std::memcpy(host.data(), &three, sizeof three);
      ours = engine->share(engine->bring(std::move(host)));
      engine->scale(data::Dtype::kFloat32, ours->data(), 2, 1);
      engine->wait();
      failure = engine->take_failure();
      place = emulated::Machine::get().device_of(ours->data());
    })
        .join();
    std::thread([&] {  // a checkpoint's
      const auto fetched = DeviceEngine::fetch(1, {ours.get()});
      if (fetched) std::memcpy(&value, (*fetched)[0]->data(), sizeof value);
      static_cast<void>(cuda::current_device(savers));
    })
        .join();
  }
  CHECK(failure.empty());
  CHECK(place == 1);
  CHECK(value == 6);
  CHECK(savers == 1);
  REQUIRE(cuda::use_device(0).ok());
}

TEST_CASE("device engine: of the host's memory that waits for the stream there is a limit",
          "[shard]") {
  emulated::restart();
  const auto engine = DeviceEngine::open(0).value();
  constexpr std::size_t kBytes = std::size_t{33} << 20;  // two of them exceed the limit
  engine->give(engine->bring(Payload(kBytes)));
  CHECK(emulated::done().copies == 0);
  engine->give(engine->bring(Payload(kBytes)));
  CHECK(emulated::done().copies == 2);
}

TEST_CASE("device chunk: a checkpoint is copied by its writer, rounds go on meanwhile", "[shard]") {
  emulated::restart();
  ShardBench bench(on_device(ShardBench::options()));
  bench.commit(1, {0});
  bench.init(0, 0);
  bench.set_optimizer(0, "sgd momentum=0.5");
  auto header = bench.push_header(0, 1);
  header.learning_rate = -1;
  bench.say(header, ShardBench::bytes({4, 4, 4}));
  CHECK(bench.value() == 4);
  SavedLoop saved;
  ServerCommit commit;
  commit.generation = Generation(2);
  commit.contributors = {WorkerId(0)};
  const auto copies = emulated::done().copies;
  bench.shard_.commit(commit, Time{}, &saved);
  CHECK(emulated::done().copies == copies);
  REQUIRE(saved.chunks.size() == 1);
  CHECK(saved.chunks[0].arrays[0]->memory() == Memory::kDevice);
  header.round = Round(2);
  header.generation = Generation(2);
  bench.say(header, ShardBench::bytes({4, 4, 4}));
  CHECK(bench.value() == 10);
  CHECK(text_of(saved.chunks[0].arrays[0]) == std::string(ShardBench::bytes({4, 4, 4}).text()));
  CHECK(text_of(saved.chunks[0].arrays[1]) == std::string(ShardBench::bytes({4, 4, 4}).text()));
}

TEST_CASE("device chunk: a checkpoint gives its memory up when rounds need it", "[shard]") {
  emulated::restart();
  const std::string optimizer = GENERATE("sgd momentum=0.5", "adam", "sgd");
  const bool is_first = GENERATE(false, true);  // the checkpoint, before any optimizer's state
  CAPTURE(optimizer, is_first);
  const auto run = [&](bool has_room) {
    ShardBench bench(on_device(ShardBench::options()));
    bench.commit(1, {0});
    for (std::uint32_t chunk = 0; chunk < 4; ++chunk) {
      data::Header header;
      header.type = data::Type::kInit;
      header.chunk = chunk;
      header.samples = kElements;
      bench.say(header, ShardBench::bytes({1, 2, 3}));
    }
    bench.set_optimizer(0, optimizer);
    std::uint64_t round = 1;
    const auto step = [&] {
      bench.take();
      for (std::uint32_t chunk = 0; chunk < 4; ++chunk) {
        auto header = bench.push_header(0, round, 2);
        header.generation = Generation(1);
        header.chunk = chunk;
        header.learning_rate = 0.5F;
        bench.say(header, ShardBench::bytes({4, 5, 6}));
      }
      ++round;
      std::vector<std::string> values;
      for (const auto& answer : bench.take()) {
        CHECK(answer.header.type == data::Type::kValue);
        values.push_back(answer.payload);
      }
      return values;
    };
    if (!is_first) step();
    const std::size_t states = optimizer == "adam" ? 2 : optimizer == "sgd" ? 0 : 1;
    SavedLoop saved;
    ServerCommit commit;
    commit.generation = Generation(2);
    commit.contributors = {WorkerId(0)};
    bench.shard_.commit(commit, Time{}, &saved);
    std::vector<std::string> kept;
    const auto look = [&] {
      std::vector<std::string> out;
      for (const auto& chunk : saved.chunks)
        for (const auto& array : chunk.arrays) out.push_back(text_of(array));
      return out;
    };
    kept = look();
    // Values and states of four chunks, one gradient, and half of a second copy.
    constexpr std::size_t kBytes = kElements * sizeof(float);
    if (!has_room) emulated::limit_device_memory(kBytes * (4 * (1 + states) + 3));
    std::vector<std::vector<std::string>> values;
    for (int i = 0; i < 3; ++i) values.push_back(step());
    CHECK(look() == kept);
    emulated::limit_device_memory(std::size_t{1} << 30);
    return values;
  };
  const auto undisturbed = run(true);
  CHECK(undisturbed.at(0).size() == 4);
  CHECK(run(false) == undisturbed);
}
