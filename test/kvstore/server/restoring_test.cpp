#include "kvstore/server/restoring.h"

#include <fstream>

#include "test/kvstore/server/checkpoint/saved_folder.h"
#include "test/kvstore/server/recorded_answers.h"

using namespace dt;
using namespace dt::kv;
using namespace dt::test;

namespace {

/// A checkpoint with the key "w", 4 elements of 0, 1, 2, 3, which each give themselves as state.
std::shared_ptr<const Checkpoint> checkpoint_in(const test::Folder& folder,
                                                bool is_damaged = false) {
  SavedChunk chunk;
  chunk.elements = 4;
  chunk.updates = 7;
  auto values = std::make_shared<Payload>(16);
  for (int i = 0; i < 4; ++i) reinterpret_cast<float*>(values->data())[i] = static_cast<float>(i);
  chunk.arrays = {values, values, nullptr};
  SavedLoop loop;
  loop.chunks = {chunk};
  loop.keys = {{"w", 4, data::Dtype::kFloat32, 0}};
  loop.optimizer = "sgd momentum=0.9";
  const std::string name = io::checkpoint_file(0);
  const auto path = (folder.path / name).string();
  const auto written = write_saved(path, {Epoch(1), Generation(1), 0, 1}, {loop});
  REQUIRE(written);
  io::Manifest manifest;
  manifest.epoch = Epoch(1);
  manifest.files.push_back({name, written->bytes, written->header_crc});
  std::ofstream(folder.path / io::kManifestName) << to_json(manifest);
  if (is_damaged) std::fstream(path, std::ios::in | std::ios::out).seekp(-1, std::ios::end) << "x";
  return Checkpoint::open(folder.path.string()).value();
}

data::Header init_of(std::uint32_t worker, std::uint64_t first, std::uint64_t count,
                     std::uint32_t chunk = 0) {
  data::Header header;
  header.type = data::Type::kInit;
  header.worker = WorkerId(worker);
  header.chunk = chunk;
  header.step = first;
  header.samples = count;
  return header;
}

struct RestoringBench {
  explicit RestoringBench(RestoreOptions with) : options(std::move(with)) {}
  RestoreOptions options;
  RecordedAnswers answers;
  ShardContext context{ComputeOptions{}};
  Chunks chunks{context, answers};
  std::vector<data::Header> again;
  Restoring restoring{options, context, chunks, answers,
                      [this](const data::Header& header) { again.push_back(header); }};
};

}  // namespace

TEST_CASE("restoring: a chunk is read once for all who ask meanwhile", "[restoring]") {
  const test::Folder folder;
  std::vector<std::function<std::function<void()>()>> reading;
  RestoringBench bench(
      {checkpoint_in(folder), [&](auto work) { reading.push_back(std::move(work)); }, {}});
  CHECK(bench.restoring.has(KeyId(0)));
  CHECK_FALSE(bench.restoring.has(KeyId(1)));
  for (const std::uint32_t worker : {0U, 1U, 2U, 1U}) bench.restoring.ask(init_of(worker, 1, 2));
  bench.restoring.ask(init_of(0, 0, 1, 1));
  REQUIRE(reading.size() == 2);
  bench.restoring.disconnect(WorkerId(2));
  const auto then = reading[0]();
  CHECK(bench.again.empty());
  then();
  REQUIRE(bench.again.size() == 2);
  CHECK(bench.again[0].worker == WorkerId(0));
  CHECK(bench.again[1].worker == WorkerId(1));
  CHECK(bench.chunks.size() == 1);
  Chunk* chunk = bench.chunks.find(init_of(0, 1, 2));
  REQUIRE(chunk);
  CHECK(floats_of(chunk->value.present()->text()) == std::vector<float>{1, 2});
  CHECK(floats_of(chunk->value.state(false)->text()) == std::vector<float>{1, 2});
  CHECK(chunk->value.updates() == 7);
  CHECK_FALSE(bench.chunks.find(init_of(0, 0, 1, 1)));
  reading[1]()();
  CHECK(bench.chunks.find(init_of(0, 0, 1, 1)));
  CHECK(bench.answers.all.empty());
}

TEST_CASE("restoring: who asks for what no key has is refused, the others ask again",
          "[restoring]") {
  const test::Folder folder;
  std::vector<std::function<std::function<void()>()>> reading;
  std::vector<std::string> damages;
  RestoringBench bench({checkpoint_in(folder),
                        [&](auto work) { reading.push_back(std::move(work)); },
                        [&](std::string why) { damages.push_back(std::move(why)); }});
  bench.restoring.ask(init_of(0, 3, 9));
  bench.restoring.ask(init_of(1, 0, 4));
  REQUIRE(reading.size() == 1);
  reading[0]()();
  REQUIRE(bench.answers.all.size() == 1);
  CHECK(bench.answers.failure(0).code == data::Code::kInvalid);
  CHECK(bench.answers.all[0].to == WorkerId(0));
  REQUIRE(bench.again.size() == 1);
  CHECK(bench.again[0].worker == WorkerId(1));
  CHECK(damages.empty());
  auto other = init_of(0, 0, 4);
  other.dtype = data::Dtype::kFloat64;
  bench.restoring.ask(other);
  CHECK(bench.answers.failure(1).message == "key 'w' is of another dtype in the checkpoint");
  CHECK(reading.size() == 1);
}

TEST_CASE("restoring: of damage the caller hears, or else those who asked", "[restoring]") {
  const test::Folder folder;
  const bool is_handled = GENERATE(true, false);
  std::vector<std::string> damages;
  RestoreOptions options{checkpoint_in(folder, true), {}, {}};
  if (is_handled) options.on_damage = [&](std::string why) { damages.push_back(std::move(why)); };
  RestoringBench bench(std::move(options));
  bench.restoring.ask(init_of(0, 0, 4));
  CHECK(damages.size() == (is_handled ? 1 : 0));
  REQUIRE(bench.answers.all.size() == (is_handled ? 0 : 1));
  const auto why = is_handled ? damages[0] : bench.answers.failure(0).message;
  CHECK(why.find("is damaged (its checksum differs)") != std::string::npos);
  CHECK(bench.again.empty());
  CHECK(bench.chunks.size() == 0);
}
