#include "trainer/module.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "test/support/catch.h"
#include "test/trainer/dtkv_double.h"
#include "trainer/checkpoint.h"
#include "trainer/models/models.h"

namespace {

namespace fs = std::filesystem;
using dt::test::dtkv_double;

/// A new double, and a store in it.
dtkv::KVStore new_store() {
  dt::test::reset_dtkv_double();
  return dtkv::KVStore("local");
}

dt::train::Module new_module(const std::string& name, std::uint64_t seed = 1) {
  const auto network = dt::train::make_network({.name = name, .num_layers = 8, .seed = seed});
  REQUIRE(network);
  return dt::train::Module(*network);
}

dt::train::DataPair digits(std::uint32_t train, std::uint32_t test) {
  return {dt::train::generate_digits(train, 1), dt::train::generate_digits(test, 2), "generated"};
}

/// Counts how often, and for which world, iterators were asked for.
class Recorder final : public dt::train::BaseDataIterator {
 public:
  Recorder(const dt::train::DataPair& data, dt::train::BatchOptions options)
      : inner_(data, options) {}
  dt::train::DataIterators get_data_iterator(const dtkv::KVStore& kv) override {
    asked.emplace_back(kv.rank(), kv.num_workers());
    return inner_.get_data_iterator(kv);
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> asked;

 private:
  dt::train::DatasetIterator inner_;
};

struct Fitted {
  dt::Result<dt::train::FitEnd> end;
  std::vector<dt::train::EpochEnd> epochs;
  std::vector<std::string> lines;
};

Fitted fit(dt::train::Module& module, dtkv::KVStore& kv, dt::train::BaseDataIterator& data,
           dt::train::FitOptions options) {
  Fitted fitted{dt::train::FitEnd::kFinished, {}, {}};
  options.say = [&](std::string_view line) { fitted.lines.emplace_back(line); };
  options.on_epoch_end = [&](const dt::train::EpochEnd& end) { fitted.epochs.push_back(end); };
  fitted.end = module.fit(kv, data, options);
  return fitted;
}

dt::test::BoundaryAnswer view(std::uint32_t rank, std::uint32_t world, std::uint32_t epoch,
                              int changed) {
  return {DTKV_OK, {1, rank, world, epoch, changed, 0}};
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Folder {
  fs::path path = fs::temp_directory_path() / ("dt-module-" + std::to_string(getpid()));
  Folder() { fs::create_directory(path); }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

}  // namespace

TEST_CASE("LeNet learns two hundred generated digits by heart") {
  auto kv = new_store();
  auto module = new_module("lenet");
  const auto data = digits(200, 200);
  dt::train::DatasetIterator iterator(data, {.per_worker = 10});
  const auto got = fit(module, kv, iterator,
                       {.num_epochs = 15, .learning_rate = {.rate = 0.01F}, .disp_batches = 10});
  REQUIRE(got.end);
  CHECK(*got.end == dt::train::FitEnd::kFinished);
  REQUIRE(got.epochs.size() == 15);
  CHECK(got.epochs.back().train_accuracy > 0.97);
  CHECK(got.epochs.back().eval_accuracy > 0.8);
  CHECK(got.epochs.back().samples == 200);
  CHECK(std::ranges::count_if(got.lines, [](const std::string& line) {
          return line.starts_with("Epoch[3] Batch [10] Speed: ");
        }) == 1);
}

TEST_CASE("a ResNet's BatchNorm statistics travel as auxiliary keys") {
  auto kv = new_store();
  auto module = new_module("resnet");
  const auto data = digits(16, 16);
  dt::train::DatasetIterator iterator(data, {.per_worker = 8});
  const auto got = fit(module, kv, iterator, {.num_epochs = 1});
  REQUIRE(got.end);
  const auto& calls = dtkv_double().calls;
  CHECK(std::ranges::count(calls, "push bn.running_mean") == 1);  // once an epoch
  CHECK(std::ranges::count(calls, "push bn.weight") == 2);        // every step
  CHECK(std::ranges::none_of(calls, [](const std::string& call) {
    return call.find("num_batches_tracked") != std::string::npos;
  }));
}

TEST_CASE("the accuracy of an epoch is that of the model that is saved") {
  Folder folder;
  const auto prefix = (folder.path / "net").string();
  auto kv = new_store();
  // Other workers' statistics, and so the mean, differ much from this one's.
  dtkv_double().on_value = [](const std::string& key, std::vector<float>& value) {
    if (key.ends_with("running_mean"))
      for (std::size_t i = 0; i < value.size(); i += 2) value[i] += 1.5F;
  };
  auto module = new_module("resnet");
  const auto data = digits(64, 200);
  dt::train::DatasetIterator iterator(data, {.per_worker = 8});
  const auto got = fit(module, kv, iterator,
                       {.num_epochs = 2, .learning_rate = {.rate = 0.05F}, .model_prefix = prefix});
  REQUIRE(got.end);
  for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
    auto saved = new_module("resnet", 9);
    REQUIRE(saved.load(dt::train::checkpoint_path(prefix, epoch + 1).string()));
    const auto iterators = iterator.get_data_iterator(kv);
    iterators.eval->begin(0);
    const auto is = saved.evaluate(*iterators.eval);
    REQUIRE(is);
    CHECK(is->samples == 200);
    CHECK(got.epochs[epoch].eval_accuracy ==
          static_cast<double>(is->right) / static_cast<double>(is->samples));
  }
  // Others may still make steps when this worker's are over, and evaluate with it afterwards.
  std::vector<std::string> order;
  for (const auto& call : dtkv_double().calls)
    if (call == "finish steps" || call == "push bn.running_mean" || call == "push dttrain.counts" ||
        call == "finish")
      order.push_back(call);
  order.resize(4);
  CHECK(order == std::vector<std::string>{"finish steps", "push bn.running_mean",
                                          "push dttrain.counts", "finish"});
}

TEST_CASE("counts and samples of an epoch are those of all workers, exact") {
  auto kv = new_store();
  auto module = new_module("mlp");
  const auto data = digits(64, 100);
  constexpr std::int64_t kOthers = (std::int64_t{1} << 40) + 1;  // no float has it
  dtkv_double().on_value = [](const std::string& key, std::vector<float>& value) {
    if (key != "dttrain.counts" && key != "dttrain.steps") return;
    for (std::size_t i = 0; i < value.size(); i += 2) {
      std::int64_t integer = 0;
      std::memcpy(&integer, &value[i], sizeof integer);
      integer += kOthers;
      std::memcpy(&value[i], &integer, sizeof integer);
    }
  };
  dt::train::DatasetIterator iterator(data, {.per_worker = 8});
  const auto got = fit(module, kv, iterator, {.num_epochs = 1});
  REQUIRE(got.end);
  CHECK(got.epochs[0].samples == 64);
  CHECK(got.epochs[0].job_samples == 64 + kOthers);
  CHECK(got.epochs[0].job_seconds >= got.epochs[0].seconds);
  // All of the others' pictures were right.
  const double right = got.epochs[0].eval_accuracy * static_cast<double>(100 + kOthers);
  CHECK(std::llround(right) >= kOthers);
  CHECK(std::llround(right) <= kOthers + 100);
  // The other workers' number of steps differs: this worker's weights may lack some steps.
  const auto& calls = dtkv_double().calls;
  const auto shared = std::ranges::find(calls, "push dttrain.steps");
  const auto counted = std::ranges::find(calls, "push dttrain.counts");
  CHECK(std::find(shared, counted, "pull fc1.weight") != counted);
}

TEST_CASE("an augmented picture depends on seed, epoch and sample alone") {
  const auto data = digits(101, 0);
  // Each sample's picture of an epoch, as a hash. The labels tell too little: by its place in the
  // common order.
  using Seen = std::vector<std::uint64_t>;
  const auto seen_by = [&](std::uint32_t world, std::uint32_t epoch, int times,
                           std::uint64_t seed = 5) {
    auto kv = new_store();
    std::vector<std::vector<std::vector<std::uint64_t>>> steps(world);
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      dtkv_double().boundaries = {view(rank, world, 0, 1)};
      dtkv_view now{};
      REQUIRE(dtkv_epoch_boundary(kv.get(), 0, &now) == DTKV_OK);
      dt::train::DatasetIterator iterator(data, {.global = 10, .seed = seed, .augment = true});
      const auto iterators = iterator.get_data_iterator(kv);
      for (int i = 0; i < times; ++i) {  // begun again, as after a rollback
        steps[rank].clear();
        if (i + 1 < times) iterators.train->begin(epoch + 1);
        iterators.train->begin(epoch);
        for (dt::train::DataBatch batch; iterators.train->next(batch);) {
          auto& step = steps[rank].emplace_back();
          const std::size_t size = batch.size() == 0 ? 0 : batch.data.size() / batch.size();
          for (std::uint32_t s = 0; s < batch.size(); ++s) {
            std::uint64_t hash = 14695981039346656037U;
            for (std::size_t k = 0; k < size; ++k) {
              const auto bits = std::bit_cast<std::uint32_t>(batch.data[s * size + k]);
              hash = (hash ^ bits) * 1099511628211U;
            }
            step.push_back(hash);
          }
        }
      }
    }
    Seen seen;
    for (std::size_t step = 0; step < steps[0].size(); ++step)
      for (const auto& of_rank : steps)
        seen.insert(seen.end(), of_rank[step].begin(), of_rank[step].end());
    return seen;
  };
  const auto alone = seen_by(1, 3, 1);
  REQUIRE(alone.size() == 101);
  CHECK((seen_by(2, 3, 1) == alone));
  CHECK((seen_by(3, 3, 1) == alone));
  CHECK((seen_by(1, 3, 2) == alone));
  CHECK((seen_by(2, 3, 3) == alone));
  CHECK_FALSE((seen_by(1, 4, 1) == alone));
  CHECK_FALSE((seen_by(1, 3, 1, 6) == alone));
}

TEST_CASE("ResNet-20 with shortcuts of option A has the published 0.27 million parameters") {
  const auto network = dt::train::make_network({.name = "resnet",
                                                .num_layers = 20,
                                                .channels = 3,
                                                .height = 32,
                                                .width = 32,
                                                .classes = 10});
  REQUIRE(network);
  CHECK(dt::train::Module(*network).num_parameters() == 269'722);
}

TEST_CASE("iterators are rebuilt when the world changed, and only then") {
  auto kv = new_store();
  auto module = new_module("mlp");
  const auto data = digits(64, 16);
  Recorder recorder(data, {.per_worker = 8});
  dtkv_double().boundaries = {view(0, 2, 0, 0), view(0, 2, 1, 0), view(0, 3, 2, 1),
                              view(0, 3, 3, 0), view(1, 2, 4, 1)};
  const auto got = fit(module, kv, recorder, {.num_epochs = 5});
  REQUIRE(got.end);
  using Asked = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  CHECK(recorder.asked == Asked{{0, 2}, {0, 3}, {1, 2}});
  CHECK(dtkv_double().asked == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  CHECK(got.epochs[1].samples == 32);
  CHECK(got.epochs[4].num_workers == 2);
}

TEST_CASE("a newcomer begins with the epoch the others are at") {
  auto kv = new_store();
  auto module = new_module("mlp");
  const auto data = digits(64, 16);
  Recorder recorder(data, {.per_worker = 8});
  dtkv_double().is_newcomer = 1;
  dtkv_double().boundaries = {view(2, 3, 7, 1)};
  const auto got = fit(module, kv, recorder, {.num_epochs = 9});
  REQUIRE(got.end);
  REQUIRE(got.epochs.size() == 2);
  CHECK(got.epochs[0].epoch == 7);
  CHECK(got.epochs[1].epoch == 8);
  CHECK(recorder.asked.size() == 1);
}

TEST_CASE("the weights are pulled after every boundary, before the first step") {
  auto kv = new_store();
  auto module = new_module("mlp");
  const auto data = digits(16, 0);
  dt::train::DatasetIterator iterator(data, {.per_worker = 8});
  REQUIRE(fit(module, kv, iterator, {.num_epochs = 2}).end);
  const auto& calls = dtkv_double().calls;
  auto at = calls.begin();
  for (int epoch = 0; epoch < 2; ++epoch) {
    at = std::find(at, calls.end(), "boundary");
    REQUIRE(at != calls.end());
    CHECK(*++at == "pull fc1.weight");
  }
  CHECK(std::ranges::count(calls, "finish") == 2);
}

TEST_CASE("gradients leave last layer first, the first layer with the highest priority") {
  auto kv = new_store();
  auto module = new_module("lenet");
  const auto data = digits(8, 0);
  dt::train::DatasetIterator iterator(data, {.per_worker = 8});
  REQUIRE(fit(module, kv, iterator, {.num_epochs = 1}).end);
  const auto& calls = dtkv_double().calls;
  CHECK(std::ranges::find(calls, "push fc2.weight") <
        std::ranges::find(calls, "push conv1.weight"));
  const auto& pushes = dtkv_double().pushes;
  REQUIRE(pushes.size() > 2);
  CHECK(pushes[0].priority < pushes[1].priority);
}

TEST_CASE("overlap changes no bit of the weights, and no array while the kvstore has it") {
  Folder folder;
  const auto name = GENERATE(as<std::string>{}, "lenet", "mlp", "resnet");
  const auto data = digits(30, 10);
  for (const bool overlap : {true, false}) {
    auto kv = new_store();
    auto module = new_module(name);
    dt::train::DatasetIterator iterator(data, {.per_worker = 8});
    REQUIRE(fit(module, kv, iterator, {.num_epochs = 2, .overlap = overlap}).end);
    CHECK(dtkv_double().under_way == 0);
    CHECK(dtkv_double().touched == 0);
    REQUIRE(module.save((folder.path / (overlap ? "with" : "without")).string()));
  }
  CHECK(bytes_of(folder.path / "with") == bytes_of(folder.path / "without"));
}

TEST_CASE(
    "without overlap nothing leaves before backward ends, and all is there when a step ends") {
  auto kv = new_store();
  auto module = new_module("lenet");
  const auto data = digits(16, 0);
  dt::train::DatasetIterator iterator(data, {.per_worker = 8});
  std::vector<std::size_t> under_way;
  dt::train::FitOptions options{.num_epochs = 1, .overlap = false};
  options.on_batch_end = [&](const dt::train::BatchEnd&) {
    under_way.push_back(dtkv_double().under_way);
  };
  REQUIRE(fit(module, kv, iterator, options).end);
  CHECK(under_way == std::vector<std::size_t>{0, 0});
  const auto& calls = dtkv_double().calls;
  const auto pushed = std::ranges::find(calls, "push conv1.weight");
  CHECK(pushed < std::ranges::find(calls, "push fc2.weight"));  // wanted first, sent first
}

TEST_CASE("a checkpoint made while weights are on their way has the new ones") {
  Folder folder;
  auto kv = new_store();
  auto module = new_module("mlp");
  const auto data = digits(8, 0);
  dt::train::DatasetIterator iterator(data, {.per_worker = 8});
  dt::train::FitOptions options{.num_epochs = 1};
  options.on_batch_end = [&](const dt::train::BatchEnd&) {
    CHECK(dtkv_double().under_way > 0);
    REQUIRE(module.save((folder.path / "early").string()));
  };
  REQUIRE(fit(module, kv, iterator, options).end);
  REQUIRE(module.save((folder.path / "late").string()));
  CHECK(bytes_of(folder.path / "early") == bytes_of(folder.path / "late"));
}

TEST_CASE("told to leave, fit pushes nothing more and says so") {
  auto kv = new_store();
  auto module = new_module("mlp");
  const auto data = digits(16, 0);
  dt::train::DatasetIterator iterator(data, {.per_worker = 8});
  dtkv_double().boundaries = {view(0, 2, 0, 0), {DTKV_LEAVE, {}}};
  const auto got = fit(module, kv, iterator, {.num_epochs = 5});
  REQUIRE(got.end);
  CHECK(*got.end == dt::train::FitEnd::kLeft);
  CHECK(dtkv_double().calls.back() == "boundary");
  CHECK(got.epochs.size() == 1);
}

TEST_CASE("servers lost in mid-epoch: on from the next boundary, with its epoch and its weights") {
  Folder folder;
  const bool overlap = GENERATE(true, false);
  const auto data = digits(24, 8);
  const auto weights = [&](std::size_t lost_after, const std::string& name) {
    auto kv = new_store();
    auto module = new_module("lenet");
    dt::train::DatasetIterator iterator(data, {.per_worker = 8});
    // The double keeps its values, so nothing may be learnt before the servers are lost.
    dtkv_double().servers_lost_after = lost_after;
    auto again = view(0, 1, 0, 0);
    again.view.rolled_back = 1;
    if (lost_after > 0) dtkv_double().boundaries = {view(0, 1, 0, 0), again};
    const auto got = fit(module, kv, iterator, {.num_epochs = 2, .overlap = overlap});
    REQUIRE(got.end);
    CHECK(*got.end == dt::train::FitEnd::kFinished);
    CHECK(got.epochs.size() == 2);
    CHECK(dtkv_double().under_way == 0);
    CHECK(std::ranges::count(got.lines, "Epoch[0] Servers were lost: it begins again") ==
          (lost_after > 0 ? 1 : 0));
    REQUIRE(module.save((folder.path / name).string()));
    return dtkv_double().asked;
  };
  CHECK(weights(0, "undisturbed") == std::vector<std::uint32_t>{0, 1});
  CHECK(weights(1, "lost") == std::vector<std::uint32_t>{0, 0, 1});
  CHECK(bytes_of(folder.path / "lost") == bytes_of(folder.path / "undisturbed"));
}

TEST_CASE("a boundary that fails ends fit with the library's sentence") {
  auto kv = new_store();
  auto module = new_module("mlp");
  const auto data = digits(16, 0);
  dt::train::DatasetIterator iterator(data, {.per_worker = 8});
  dtkv_double().boundaries = {{DTKV_UNAVAILABLE, {}}};
  const auto got = fit(module, kv, iterator, {.num_epochs = 5});
  REQUIRE_FALSE(got.end);
  CHECK(got.end.error().message == "cannot pass the epoch boundary: the test says so");
}

TEST_CASE("an empty share of a step is pushed with no samples and the common step number") {
  // Two workers, four samples a step: the last one has five; and a step of one, of which rank 0 has
  // none.
  const auto [count, wanted] =
      GENERATE(table<std::uint32_t, std::vector<std::uint64_t>>({{9, {2, 2}}, {1, {0}}}));
  auto kv = new_store();
  auto module = new_module("mlp");
  const auto data = digits(count, 0);
  dt::train::DatasetIterator iterator(data, {.per_worker = 2});
  dtkv_double().boundaries = {view(0, 2, 0, 0)};
  REQUIRE(fit(module, kv, iterator, {.num_epochs = 1}).end);
  std::vector<std::uint64_t> samples;
  for (const auto& push : dtkv_double().pushes) {
    if (push.learning_rate != 0) {  // the mlp is one bucket
      samples.push_back(push.samples);
      CHECK(push.step == samples.size() - 1);
    }
  }
  CHECK(samples == wanted);
}

TEST_CASE("the learning rate follows the world smoothly and stays there") {
  auto kv = new_store();
  auto module = new_module("mlp");
  const auto data = digits(64, 0);
  dt::train::DatasetIterator iterator(data, {.per_worker = 4});
  dtkv_double().boundaries = {view(0, 1, 0, 0), view(0, 2, 1, 1), view(0, 2, 2, 0)};
  dt::train::FitOptions options{.num_epochs = 3,
                                .learning_rate = {.rate = 0.1F, .smooth_steps = 4}};
  REQUIRE(fit(module, kv, iterator, options).end);
  std::vector<float> rates;  // of epochs 1 and 2
  for (const auto& push : dtkv_double().pushes) {
    if (push.learning_rate != 0 && push.step >> 32U != 0) rates.push_back(push.learning_rate);
  }
  REQUIRE(rates.size() == 16);
  CHECK(rates.front() > 0.1F);
  CHECK(rates.front() < 0.15F);
  CHECK(std::ranges::is_sorted(rates));
  CHECK(rates[4] == 0.2F);
  CHECK(rates[8] == 0.2F);  // the epoch after does not start over
}

TEST_CASE("a module goes on from its checkpoint with the same weights") {
  Folder folder;
  const auto prefix = (folder.path / "net").string();
  auto kv = new_store();
  auto module = new_module("resnet");
  const auto data = digits(16, 0);
  dt::train::DatasetIterator iterator(data, {.per_worker = 8});
  const auto got = fit(module, kv, iterator, {.num_epochs = 2, .model_prefix = prefix});
  REQUIRE(got.end);
  const auto second = dt::train::checkpoint_path(prefix, 2);
  CHECK(fs::exists(dt::train::checkpoint_path(prefix, 1)));
  CHECK(std::ranges::count(got.lines, "Saved checkpoint to \"" + second.string() + "\"") == 1);

  auto other = new_module("resnet", 9);
  REQUIRE(other.load(second.string()));
  REQUIRE(other.save((folder.path / "copy").string()));
  CHECK(bytes_of(folder.path / "copy") == bytes_of(second));

  auto mlp = new_module("mlp");
  REQUIRE(mlp.save((folder.path / "before").string()));
  const auto refused = mlp.load(second.string());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("it was made by another network") != std::string::npos);
  REQUIRE(mlp.save((folder.path / "after").string()));
  CHECK(bytes_of(folder.path / "before") == bytes_of(folder.path / "after"));
}

TEST_CASE("only the lead worker writes checkpoints") {
  Folder folder;
  auto kv = new_store();
  auto module = new_module("mlp");
  const auto data = digits(16, 0);
  dt::train::DatasetIterator iterator(data, {.per_worker = 8});
  dtkv_double().boundaries = {view(1, 2, 0, 0)};
  REQUIRE(
      fit(module, kv, iterator, {.num_epochs = 1, .model_prefix = (folder.path / "net").string()})
          .end);
  CHECK(fs::is_empty(folder.path));
}

TEST_CASE("networks that cannot be are refused by name") {
  CHECK_FALSE(dt::train::make_network({.name = "vgg"}));
  CHECK_FALSE(dt::train::make_network({.name = "resnet", .num_layers = 21}));
  CHECK_FALSE(dt::train::make_network({.name = "lenet", .height = 8}));
}
