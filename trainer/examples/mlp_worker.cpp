/// mlp_worker: an example of a user's own training program, without any framework. A network of one
/// hidden layer learns digits; the kvstore sums the gradients. Run it by itself or as a worker:
///
///     dtlaunch -n 2 -H hosts --elastic-training-enabled mlp_worker --epochs 10
///
/// Worker::run() is the shape of any elastic program: create the keys, then for every epoch
/// boundary - pull - steps; if a call reports that servers were lost, it goes on at the next
/// boundary.
#include <getopt.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/base/number.h"
#include "kvstore/kvstore.h"
#include "trainer/data/data.h"
#include "trainer/data/sampler.h"
#include "trainer/examples/mlp.h"

using namespace dt::train;

namespace {

constexpr const char* kUsage = R"(usage: mlp_worker [options]

  --epochs N           epochs to train (3)
  --batch N            samples a step of one worker (32)
  --steps-per-epoch N  steps in an epoch, whatever the world size (all data once)
  --step-ms MS         a step takes at least this long
  --samples N          generated digits to train on (2000)
  --data DIR           MNIST in this folder instead of generated digits
)";

struct Options {
  std::uint32_t epochs = 3;
  std::uint32_t batch = 32;
  std::uint32_t steps_per_epoch = 0;
  std::uint32_t step_ms = 0;
  std::uint32_t samples = 2000;
  std::string data;
};

[[noreturn]] void die(int code, const std::string& why) {
  std::fprintf(stderr, "mlp_worker: %s\n", why.c_str());
  std::exit(code);
}

Options parse(int argc, char** argv) {
  Options o;
  const std::array numbers{&o.epochs, &o.batch, &o.steps_per_epoch, &o.step_ms, &o.samples};
  constexpr std::array names{
      option{"epochs", 1, nullptr, 0},          option{"batch", 1, nullptr, 0},
      option{"steps-per-epoch", 1, nullptr, 0}, option{"step-ms", 1, nullptr, 0},
      option{"samples", 1, nullptr, 0},         option{"data", 1, nullptr, 'd'},
      option{"help", 0, nullptr, 'h'},          option{nullptr, 0, nullptr, 0}};
  int index = 0;
  for (int c = 0; (c = getopt_long(argc, argv, "", names.data(), &index)) != -1;) {
    if (c == '?') std::exit(2);  // getopt has printed the error
    if (c == 'h') std::exit(std::fputs(kUsage, stdout) < 0);
    if (c == 'd') {
      o.data = optarg;
      continue;
    }
    const auto at = static_cast<std::size_t>(index);
    const auto value = dt::parse_number<std::uint32_t>(optarg);
    if (!value) die(2, fmt::format("--{}: not a number: {}", names.at(at).name, optarg));
    *numbers.at(at) = *value;
  }
  if (optind < argc) die(2, std::string("what is ") + argv[optind] + "? (--help)");
  if (o.batch == 0 || o.samples == 0) die(2, "--batch, --samples: not 0");
  return o;
}

DataPair load(const Options& options) {
  if (options.data.empty())
    return {generate_digits(options.samples, 1), generate_digits(500, 2), ""};
  auto data = load_mnist(options.data);
  if (!data) die(1, data.error().message);
  return std::move(*data);
}

class Worker {
 public:
  explicit Worker(Options options)
      : options_(std::move(options)),
        data_(load(options_)),
        model_(data_.train.image_size(), 32, 1) {}

  void run() {
    kv_.init(entries(model_.values()));
    kv_.set_optimizer("sgd momentum=0.9");
    kv_.pull(entries(model_.values()));  // a newcomer is warm when it has the weights
    std::uint32_t epoch = 0;
    while (epoch < options_.epochs) {
      try {
        const auto view = kv_.epoch_boundary(epoch);
        if (!view) return say("released; done");
        epoch = view->epoch;  // for a newcomer the epoch of the others
        if (epoch >= options_.epochs) return;
        kv_.pull(entries(model_.values()));
        train(*view);
        kv_.finish_epoch();
        report(*view);
        ++epoch;
      } catch (const dtkv::Error& error) {
        if (error.code() != DTKV_ROLLBACK)
          throw;  // the next boundary returns the epoch to go on with
      }
    }
  }

 private:
  std::vector<dtkv::Entry> entries(std::vector<float>& flat) const {
    std::vector<dtkv::Entry> all;
    const auto arrays = model_.arrays(flat);
    for (std::size_t k = 0; k < Mlp::kKeys; ++k) all.emplace_back(Mlp::kKeyNames[k], arrays[k]);
    return all;
  }

  void train(const dtkv_view& view) {
    Sampler sampler({.samples = data_.train.size(),
                     .global_batch = options_.batch * view.num_workers,
                     .rank = view.rank,
                     .world = view.num_workers,
                     .seed = 1});
    sampler.begin(view.epoch);
    const auto steps = options_.steps_per_epoch != 0 ? options_.steps_per_epoch : sampler.steps();
    for (std::uint32_t step = 0; step < steps; ++step) {
      const auto end =
          std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.step_ms);
      learn(sampler.batch(step % sampler.steps()), std::uint64_t{view.epoch} << 32U | step);
      kv_.progress(view.epoch, step);
      std::this_thread::sleep_until(end);
    }
  }

  /// One step: the gradients of all workers' batches go in, the new weights come out.
  void learn(std::span<const std::uint32_t> batch, std::uint64_t step) {
    std::vector<float> x(data_.train.image_size());
    model_.zero_gradients();
    for (const std::uint32_t i : batch) {
      data_.train.normalised(i, x.data());
      model_.learn(x.data(), data_.train.labels[i], 1.0F / static_cast<float>(batch.size()));
    }
    kv_.pushpull(entries(model_.gradients()), entries(model_.values()),
                 {.samples = batch.size(), .step = step, .learning_rate = 0.05F});
  }

  void report(const dtkv_view& view) {
    std::uint32_t right = 0;
    std::vector<float> x(data_.test.image_size());
    const std::uint32_t count = std::min(data_.test.size(), 500U);
    for (std::uint32_t i = 0; i < count; ++i) {
      data_.test.normalised(i, x.data());
      right += model_.is_right(x.data(), data_.test.labels[i]) ? 1U : 0U;
    }
    say(fmt::format("Epoch[{}] Validation-accuracy={:.4f} rank {} of {}", view.epoch,
                    static_cast<double>(right) / count, view.rank, view.num_workers));
  }

  static void say(const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }

  Options options_;
  DataPair data_;
  Mlp model_;
  dtkv::KVStore kv_{std::getenv("DT_AGENT_SOCKET") != nullptr ? "dist_sync" : "local"};
};

}  // namespace

int main(int argc, char** argv) try {
  Worker(parse(argc, argv)).run();
  return 0;
} catch (const std::exception& error) {
  die(1, error.what());
}
