/// elastic_worker: the worker of the elasticity tests and of the pause benchmark. It trains the
/// network of mlp_worker through the kvstore's C interface, logs its actions with times, and pads,
/// crashes, hangs or delays on request.
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/base/number.h"
#include "core/base/time.h"
#include "kvstore/dtkv.h"
#include "trainer/data/data.h"
#include "trainer/data/sampler.h"
#include "trainer/examples/mlp.h"

using dt::train::Mlp;

namespace {

constexpr const char* kUsage = R"(usage: elastic_worker [options]

  --epochs N           epochs to train (3)
  --batch N            samples a step of one worker (32)
  --global-batch N     samples a step of all workers together, instead of --batch
  --steps-per-epoch N  steps in an epoch, whatever the world size (all data once)
  --samples N          generated digits to train on (2000)
  --data DIR           MNIST in this folder instead of generated digits ("generated")
  --hidden N           hidden units (32)
  --lr X --momentum X  learning rate (0.05), momentum (0.9)
  --optimizer SPEC     the kvstore's optimizer, instead of sgd with --momentum
  --seed N             initial weights and order of samples (1)
  --kv-type TYPE       local, dist_sync, ... (dist_sync under dtlaunch, else local)
  --log FILE           JSON lines of every boundary, step and epoch; %i becomes the worker id
  --hash               print a hash of the weights after every epoch
  --final-weights FILE the weights at the end as raw floats; %i becomes the worker id
  --progress-bar       print the same line ten times a second, as progress bars do
Faults; the last six concern --victim only:
  --victim WHO         a worker id, "newcomer" or "all" (all)
  --step-ms MS         a step takes at least this long
  --fewer-steps N      a worker of rank r makes r*N steps fewer in every epoch
  --warm-delay-s S     wait before the first boundary
  --crash-at E:S       killed by SIGKILL before step S of epoch E
  --hang-at E:S        hangs there instead
  --stop-at E:S,...    stops there as SIGSTOP does, once in each place, until SIGCONT
  --never-boundary     hangs before its first boundary
  --ignore-leave       hangs, deaf to SIGTERM, when told to leave
)";

struct Options {
  std::uint32_t epochs = 3;
  std::uint32_t batch = 32;
  std::uint32_t global_batch = 0;
  std::uint32_t steps_per_epoch = 0;
  std::uint32_t samples = 2000;
  std::string data = "generated";
  std::uint32_t hidden = 32;
  float lr = 0.05F;
  float momentum = 0.9F;
  std::string optimizer;
  std::uint64_t seed = 1;
  std::string kv_type = std::getenv("DT_AGENT_SOCKET") != nullptr ? "dist_sync" : "local";
  std::string log;
  bool hash = false;
  std::string final_weights;
  bool progress_bar = false;
  std::string victim = "all";
  double step_ms = 0;
  std::uint32_t fewer_steps = 0;
  double warm_delay_s = 0;
  std::string crash_at;
  std::string hang_at;
  std::string stop_at;
  bool never_boundary = false;
  bool ignore_leave = false;
};

[[noreturn]] void die(int code, const std::string& why) {
  std::fprintf(stderr, "elastic_worker: %s\n", why.c_str());
  std::exit(code);
}

template <class T>
T number(const char* option, const char* text) {
  const auto value = dt::parse_number<T>(text);
  if (!value || *value < T{}) die(2, std::string("--") + option + ": not a number: " + text);
  return *value;
}

Options parse(int argc, char** argv) {
  constexpr std::array names{
      option{"epochs", 1, nullptr, 0},        option{"batch", 1, nullptr, 0},
      option{"global-batch", 1, nullptr, 0},  option{"steps-per-epoch", 1, nullptr, 0},
      option{"samples", 1, nullptr, 0},       option{"data", 1, nullptr, 0},
      option{"hidden", 1, nullptr, 0},        option{"lr", 1, nullptr, 0},
      option{"momentum", 1, nullptr, 0},      option{"optimizer", 1, nullptr, 0},
      option{"seed", 1, nullptr, 0},          option{"kv-type", 1, nullptr, 0},
      option{"log", 1, nullptr, 0},           option{"hash", 0, nullptr, 0},
      option{"final-weights", 1, nullptr, 0}, option{"victim", 1, nullptr, 0},
      option{"step-ms", 1, nullptr, 0},       option{"fewer-steps", 1, nullptr, 0},
      option{"warm-delay-s", 1, nullptr, 0},  option{"crash-at", 1, nullptr, 0},
      option{"hang-at", 1, nullptr, 0},       option{"never-boundary", 0, nullptr, 0},
      option{"ignore-leave", 0, nullptr, 0},  option{"stop-at", 1, nullptr, 0},
      option{"progress-bar", 0, nullptr, 0},  option{"help", 0, nullptr, 0},
      option{nullptr, 0, nullptr, 0},
  };
  Options o;
  int index = 0;
  for (int c = 0; (c = getopt_long(argc, argv, "", names.data(), &index)) != -1;) {
    if (c != 0) std::exit(2);  // getopt has printed the error
    const std::string name = names[static_cast<std::size_t>(index)].name;
    const auto set = [&](auto& field) {
      field = number<std::remove_reference_t<decltype(field)>>(name.c_str(), optarg);
    };
    if (name == "help") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    }
    if (name == "epochs") set(o.epochs);
    if (name == "batch") set(o.batch);
    if (name == "global-batch") set(o.global_batch);
    if (name == "steps-per-epoch") set(o.steps_per_epoch);
    if (name == "samples") set(o.samples);
    if (name == "data") o.data = optarg;
    if (name == "hidden") set(o.hidden);
    if (name == "lr") set(o.lr);
    if (name == "momentum") set(o.momentum);
    if (name == "optimizer") o.optimizer = optarg;
    if (name == "seed") set(o.seed);
    if (name == "kv-type") o.kv_type = optarg;
    if (name == "log") o.log = optarg;
    if (name == "hash") o.hash = true;
    if (name == "final-weights") o.final_weights = optarg;
    if (name == "progress-bar") o.progress_bar = true;
    if (name == "victim") o.victim = optarg;
    if (name == "step-ms") set(o.step_ms);
    if (name == "fewer-steps") set(o.fewer_steps);
    if (name == "warm-delay-s") set(o.warm_delay_s);
    if (name == "crash-at") o.crash_at = optarg;
    if (name == "stop-at") o.stop_at = "," + std::string(optarg) + ",";
    if (name == "hang-at") o.hang_at = optarg;
    if (name == "never-boundary") o.never_boundary = true;
    if (name == "ignore-leave") o.ignore_leave = true;
  }
  if (optind < argc) die(2, std::string("what is ") + argv[optind] + "? (--help)");
  if (o.batch == 0 || o.hidden == 0 || o.samples == 0)
    die(2, "--batch, --hidden, --samples: not 0");
  if (o.optimizer.empty()) o.optimizer = fmt::format("sgd momentum={}", o.momentum);
  return o;
}

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

[[noreturn]] void hang() {
  for (;;) pause();
}

/// The servers were lost: requests to them have failed. The next boundary returns the epoch to
/// continue with, and the weights that it began with.
struct ServersLost {};

/// The program's single run; its members are used in every step.
class Worker {
 public:
  explicit Worker(Options options) : options_(std::move(options)) {}
  ~Worker() {
    dtkv_destroy(store_);
    if (log_ != nullptr) std::fclose(log_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int run() {
    if (options_.progress_bar) bar_ = std::jthread(&Worker::show_progress);
    load();
    must(dtkv_create(options_.kv_type.c_str(), &store_), "create the kvstore");
    id_ = dtkv_worker_id(store_);
    open_log();
    model_ = std::make_unique<Mlp>(data_.train.image_size(), options_.hidden, options_.seed);
    const auto values = model_->arrays(model_->values());
    must(dtkv_init(store_, Mlp::kKeys, Mlp::kKeyNames.data(), values.data(), DTKV_KEY_PARAMETER),
         "create the keys");
    const auto done = done_array();
    must(dtkv_init(store_, 1, &kDoneKey, &done, DTKV_KEY_AUXILIARY), "create the last key");
    must(dtkv_set_optimizer(store_, options_.optimizer.c_str()), "set the optimizer");
    try {
      pull();  // a newcomer is warm when it holds the weights
    } catch (const ServersLost&) {
    }
    misbehave_before_first_boundary();

    for (std::uint32_t epoch = 0; epoch < options_.epochs;) {
      try {
        if (!boundary(epoch)) return 0;
        epoch = view_.epoch;  // a newcomer gets the job's epoch here
        if (epoch >= options_.epochs) break;
        train(epoch);
        finish(epoch);
        report(epoch);
        ++epoch;
      } catch (const ServersLost&) {
        note("\"event\":\"servers_lost\"");
      }
    }
    write_weights();
    note("\"event\":\"end\"");
    return 0;
  }

 private:
  static void show_progress(const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    for (int i = 0; !stop.stop_requested(); ++i) {
      std::printf("\rstep %d", i);
      std::fflush(stdout);
      never.wait_for(lock, stop, std::chrono::milliseconds(100), [] { return false; });
    }
  }

  void must(int code, const char* doing) {
    if (code == DTKV_OK) return;
    if (code == DTKV_ROLLBACK) throw ServersLost{};
    note(fmt::format("\"event\":\"error\",\"code\":{}", code));
    die(1, std::string("cannot ") + doing + ": " + dtkv_last_error());
  }

  void load() {
    if (options_.data == "generated") {
      data_.train = dt::train::generate_digits(options_.samples, 1);
      data_.test = dt::train::generate_digits(kTested, 2);
    } else if (auto data = dt::train::load_mnist(options_.data)) {
      data_ = std::move(*data);
    } else {
      die(1, data.error().message);
    }
  }

  /// False if the worker is to leave.
  bool boundary(std::uint32_t epoch) {
    note(fmt::format("\"event\":\"boundary_enter\",\"next\":{}", epoch));
    const int code = dtkv_epoch_boundary(store_, epoch, &view_);
    if (code == DTKV_LEAVE) {
      note("\"event\":\"boundary_leave\",\"result\":\"leave\"");
      say("released; done");
      if (options_.ignore_leave && is_victim()) {
        std::signal(SIGTERM, SIG_IGN);
        hang();
      }
      return false;
    }
    must(code, "pass the epoch boundary");
    note(fmt::format(
        "\"event\":\"boundary_leave\",\"result\":\"{}\",\"generation\":{},\"changed\":{}",
        view_.rolled_back != 0 ? "rollback" : "ok", view_.generation, view_.changed));
    pull();
    const std::uint32_t global =
        options_.global_batch != 0 ? options_.global_batch : options_.batch * view_.num_workers;
    sampler_ = std::make_unique<dt::train::Sampler>(
        dt::train::SamplerOptions{.samples = data_.train.size(),
                                  .global_batch = global,
                                  .rank = view_.rank,
                                  .world = view_.num_workers,
                                  .seed = options_.seed});
    return true;
  }

  void train(std::uint32_t epoch) {
    sampler_->begin(epoch);
    std::uint32_t steps =
        options_.steps_per_epoch != 0 ? options_.steps_per_epoch : sampler_->steps();
    steps -= std::min(steps, options_.fewer_steps * view_.rank);
    for (std::uint32_t step = 0; step < steps; ++step) {
      misbehave(epoch, step);
      const std::int64_t begin = now_ns();
      const float loss = one_step(epoch, step);
      if (options_.step_ms > 0) {
        const auto least = static_cast<std::int64_t>(options_.step_ms * 1e6);
        const std::chrono::nanoseconds left(begin + least - now_ns());
        std::this_thread::sleep_for(left);  // tidy: allow (the step's length is what is asked for)
      }
      note(fmt::format("\"event\":\"step\",\"step\":{},\"begin_ns\":{},\"loss\":{:.6g}", step,
                       begin, loss));
      must(dtkv_progress(store_, epoch, step), "report progress");
    }
  }

  /// This worker takes no further step in this epoch. In the last epoch a round on a separate key
  /// ends when that holds for all workers, so that all pull the same final weights. It waits for
  /// that answer after finishing: otherwise it and workers with steps left would wait for each
  /// other.
  void finish(std::uint32_t epoch) {
    dtkv_handle all_done = 0;
    dtkv_push_options push{};
    push.samples = 1;
    push.step = std::uint64_t{epoch} << 32U | 0xffffffffU;
    const bool last = epoch + 1 == options_.epochs;
    if (last) {
      const auto done = done_array();
      must(dtkv_pushpull(store_, 1, &kDoneKey, &done, &done, &push, &all_done), "end together");
    }
    must(dtkv_finish_epoch(store_), "finish the epoch");
    if (last) {
      must(dtkv_wait(store_, all_done, 0), "wait for the others' last steps");
      pull();
    }
  }

  dtkv_array done_array() { return {&done_, 1, DTKV_FLOAT32, DTKV_CPU, 0, nullptr}; }

  float one_step(std::uint32_t epoch, std::uint32_t step) {
    const auto batch = sampler_->batch(step % sampler_->steps());
    std::vector<float> x(data_.train.image_size());
    float loss = 0.0F;
    model_->zero_gradients();
    for (const std::uint32_t i : batch) {
      data_.train.normalised(i, x.data());
      loss +=
          model_->learn(x.data(), data_.train.labels[i], 1.0F / static_cast<float>(batch.size()));
    }
    dtkv_push_options push{};
    push.samples = batch.size();
    push.step = std::uint64_t{epoch} << 32U | step;
    push.learning_rate = options_.lr;
    const auto gradients = model_->arrays(model_->gradients());
    const auto values = model_->arrays(model_->values());
    must(dtkv_pushpull(store_, Mlp::kKeys, Mlp::kKeyNames.data(), gradients.data(), values.data(),
                       &push, nullptr),
         "exchange gradients");
    return batch.empty() ? 0.0F : loss / static_cast<float>(batch.size());
  }

  void pull() {
    const auto values = model_->arrays(model_->values());
    must(dtkv_pull(store_, Mlp::kKeys, Mlp::kKeyNames.data(), values.data(), 0, nullptr),
         "pull the weights");
  }

  void report(std::uint32_t epoch) {
    std::uint32_t right = 0;
    std::vector<float> x(data_.test.image_size());
    const std::uint32_t count = std::min(data_.test.size(), kTested);
    for (std::uint32_t i = 0; i < count; ++i) {
      data_.test.normalised(i, x.data());
      right += model_->is_right(x.data(), data_.test.labels[i]) ? 1U : 0U;
    }
    const double accuracy = static_cast<double>(right) / count;
    const std::uint64_t hash = weights_hash();
    say(fmt::format("Epoch[{}] Validation-accuracy={:.4f} rank {} of {}", epoch, accuracy,
                    view_.rank, view_.num_workers));
    if (options_.hash) say(fmt::format("Epoch[{}] Weights={:016x}", epoch, hash));
    note(fmt::format("\"event\":\"epoch\",\"accuracy\":{:.4f},\"hash\":\"{:016x}\"", accuracy,
                     hash));
  }

  /// FNV-1a over the weights' bits.
  std::uint64_t weights_hash() {
    std::uint64_t hash = 0xcbf29ce484222325U;
    const auto* bytes = reinterpret_cast<const unsigned char*>(model_->values().data());
    for (std::size_t i = 0; i < model_->values().size() * sizeof(float); ++i) {
      hash = (hash ^ bytes[i]) * 0x100000001b3U;
    }
    return hash;
  }

  void write_weights() {
    if (options_.final_weights.empty()) return;
    const std::string path = with_id(options_.final_weights);
    std::FILE* file = std::fopen(path.c_str(), "wb");
    const auto& values = model_->values();
    if (file == nullptr ||
        std::fwrite(values.data(), sizeof(float), values.size(), file) != values.size() ||
        std::fclose(file) != 0) {
      die(1, "cannot write " + path);
    }
  }

  bool is_victim() const {
    if (options_.victim == "newcomer") return dtkv_is_newcomer(store_) != 0;
    return options_.victim == "all" || options_.victim == std::to_string(id_);
  }

  void misbehave_before_first_boundary() {
    if (!is_victim()) return;
    if (options_.never_boundary) hang();
    const auto delay = dt::from_seconds(options_.warm_delay_s);
    std::this_thread::sleep_for(delay);  // tidy: allow (the delay is what is asked for)
  }

  void misbehave(std::uint32_t epoch, std::uint32_t step) {
    const std::string here = fmt::format("{}:{}", epoch, step);
    if (const auto at = options_.stop_at.find("," + here + ","); at != std::string::npos) {
      // An epoch that begins again must not stop again.
      options_.stop_at.erase(at, here.size() + 1);
      if (is_victim()) std::raise(SIGSTOP);
    }
    if ((here != options_.crash_at && here != options_.hang_at) || !is_victim()) return;
    note("\"event\":\"misbehave\"");
    if (here == options_.crash_at) std::raise(SIGKILL);
    hang();
  }

  std::string with_id(std::string text) const {
    if (const auto at = text.find("%i"); at != std::string::npos) {
      text.replace(at, 2, std::to_string(id_));
    }
    return text;
  }

  void open_log() {
    if (options_.log.empty()) return;
    const std::string path = with_id(options_.log);
    log_ = std::fopen(path.c_str(), "ae");
    if (log_ == nullptr) die(1, "cannot write " + path);
    note(fmt::format("\"event\":\"start\",\"pid\":{}", getpid()));
  }

  /// Writes one line of the log: worker, place and time, then `more`. t_ns is the monotonic clock.
  void note(const std::string& more) {
    if (log_ == nullptr) return;
    fmt::print(log_, "{{\"t_ns\":{},\"worker\":{},\"rank\":{},\"world\":{},\"epoch\":{},{}}}\n",
               now_ns(), id_, view_.rank, view_.num_workers, view_.epoch, more);
    std::fflush(log_);
  }

  static void say(const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }

  static constexpr const char* kDoneKey = "done";
  static constexpr std::uint32_t kTested = 200;  // samples, after each epoch

  Options options_;
  float done_ = 0;
  dt::train::DataPair data_;
  dtkv_store* store_ = nullptr;
  std::uint32_t id_ = 0;
  std::FILE* log_ = nullptr;
  std::unique_ptr<Mlp> model_;
  dtkv_view view_{};
  std::unique_ptr<dt::train::Sampler> sampler_;
  std::jthread bar_;  ///< The progress bar.
};

}  // namespace

int main(int argc, char** argv) { return Worker(parse(argc, argv)).run(); }
