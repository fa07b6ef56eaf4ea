/// A shard without sockets: a test passes frames in, and the answers to each worker are kept.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/server/shard.h"
#include "test/kvstore/device_under_test.h"
#include "test/support/catch.h"

namespace dt::test {

using namespace dt::kv;

inline constexpr std::size_t kElements = 3;

class ShardBench : public Answers {
 public:
  struct Answer {
    WorkerId to;
    data::Header header;
    std::string payload;
  };

  explicit ShardBench(bool deterministic = false) : ShardBench(options(deterministic)) {}
  explicit ShardBench(ShardOptions options) : shard_(options, *this) {}
  static ShardOptions options(bool deterministic = false) {
    ShardOptions options;
    options.deterministic = deterministic;
    options.is_registrar = true;
    options.hold_limit = std::chrono::seconds(10);
    if (const auto device = device_under_test())
      options.device = kv::DeviceEngine::open(*device).value();
    return options;
  }

  void answer(WorkerId to, const data::Header& header,
              std::shared_ptr<const Payload> payload) override {
    answers.push_back({to, header, payload ? std::string(payload->text()) : std::string()});
  }
  /// The answers since the last call.
  std::vector<Answer> take() { return std::exchange(answers, {}); }

  Members::Applied commit(std::uint64_t generation, std::vector<std::uint32_t> workers,
                          std::uint32_t epoch = 0) {
    ServerCommit commit;
    commit.generation = Generation(generation);
    commit.epoch = Epoch(epoch);
    for (auto w : workers) commit.contributors.push_back(WorkerId(w));
    return shard_.commit(commit, Time{});
  }
  void say(data::Header header, Payload payload = {}, Time now = Time{}) {
    header.request = ++requests;
    header.payload = static_cast<std::uint32_t>(payload.size());
    shard_.handle(header, std::move(payload), now);
  }
  static Payload bytes(const std::vector<float>& values) {
    Payload payload(values.size() * sizeof(float));
    std::memcpy(payload.data(), values.data(), payload.size());
    return payload;
  }
  static std::vector<float> floats(const std::string& payload) {
    std::vector<float> out(payload.size() / sizeof(float));
    std::memcpy(out.data(), payload.data(), payload.size());
    return out;
  }
  void init(std::uint32_t worker, float value, std::uint8_t flags = 0) {
    data::Header header;
    header.type = data::Type::kInit;
    header.worker = WorkerId(worker);
    header.samples = kElements;
    header.flags = flags;
    say(header, bytes(std::vector<float>(kElements, value)));
  }
  data::Header push_header(std::uint32_t worker, std::uint64_t round,
                           std::uint64_t generation = 1) {
    data::Header header;
    header.type = data::Type::kPushPull;
    header.worker = WorkerId(worker);
    header.round = Round(round);
    header.generation = Generation(generation);
    header.samples = 1;
    return header;
  }
  void push(std::uint32_t worker, std::uint64_t round, float value, std::uint64_t generation = 1) {
    say(push_header(worker, round, generation), bytes(std::vector<float>(kElements, value)));
  }
  void finish(std::uint32_t worker, std::uint64_t phase, std::uint32_t next = 1) {
    data::Header header;
    header.type = data::Type::kFinish;
    header.worker = WorkerId(worker);
    header.round = Round(phase);
    header.step = next;
    say(header);
  }
  void set_optimizer(std::uint32_t worker, const std::string& spec, std::uint8_t flags = 0) {
    data::Header header;
    header.type = data::Type::kSetOptimizer;
    header.worker = WorkerId(worker);
    header.flags = flags;
    say(header, Payload(spec));
  }
  float value() {
    data::Header header;
    header.type = data::Type::kPull;
    header.worker = WorkerId(99);
    say(header);
    const auto got = floats(answers.back().payload);
    answers.pop_back();
    return got.at(0);
  }
  static data::Code code(const Answer& answer) {
    REQUIRE(answer.header.type == data::Type::kFailed);
    return wire::parse<data::Failure>(answer.payload)->code;
  }

  std::vector<Answer> answers;
  Shard shard_;
  std::uint64_t requests = 0;
};

}  // namespace dt::test
