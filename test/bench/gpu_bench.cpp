/// The speed of kvstore/compute/cuda's operations on a device, compared with the device's own copy.
///
///     gpu_bench [--device N] [--reps N] [--mib N]
///
/// Each figure is the median of N (15) pairs, copy and operation in turn, by the stream's events.
///     bytes     that must be read and written, counted once
///     GB/s      bytes over time
///     x copy    GB/s over that of a copy of 256 MiB inside the device, which moves 512 MiB
///     verdict   whether x copy is at least 0.85, for the operations that must reach it
/// With --mib arrays have N MiB instead of 256.
/// Exit codes: 0, 1 a call failed, 2 bad usage, 3 a verdict is "below", 77 no device.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kvstore/compute/cuda/codecs.h"
#include "kvstore/compute/cuda/cuda_steps.h"
#include "kvstore/compute/cuda/launch.h"
#include "kvstore/compute/cuda/sum.h"

using namespace dt::kv::cuda;

namespace {

constexpr int kBelowExit = 3;
/// Fraction of the device's own copy rate.
constexpr double kLeast = 0.85;

struct Options {
  int device = 0;
  int reps = 15;
  unsigned long mib = 256;
};

void must(Status status) {
  if (status.ok()) return;
  std::fprintf(stderr, "gpu_bench: %s\n", status.error);
  std::exit(1);
}

/// Device memory for the whole run.
class Arrays {
 public:
  explicit Arrays(Stream stream) : stream_(stream), some_(kSome) {
    std::mt19937 random(1);
    for (auto& x : some_) x = static_cast<float>(random() % 2001) / 1000.0F - 1.0F;
  }
  /// Numbers between -1 and 1.
  float* random(std::size_t elements) {
    auto* array = static_cast<float*>(zeros(elements * sizeof(float)));
    for (std::size_t i = 0; i < elements; i += kSome)
      must(copy(array + i, some_.data(), std::min(kSome, elements - i) * sizeof(float), stream_));
    must(wait(stream_));
    return array;
  }
  void* zeros(std::size_t bytes) {
    all_.emplace_back();
    must(all_.back().allocate(bytes));
    must(fill(all_.back().data(), 0, bytes, stream_));
    return all_.back().data();
  }
  void free_all() { all_.clear(); }

 private:
  static constexpr std::size_t kSome = std::size_t{1} << 20;
  Stream stream_;
  std::vector<float> some_;
  std::vector<DeviceMemory> all_;
};

class Bench {
 public:
  Bench(Stream stream, const Options& options)
      : stream_(stream), options_(options), arrays_(stream) {
    must(begin_.create());
    must(end_.create());
    must(from_.allocate(bytes()));
    must(to_.allocate(bytes()));
    must(fill(from_.data(), 1, bytes(), stream));
  }

  Arrays& arrays() { return arrays_; }
  /// Bytes of an array, and of the copy.
  [[nodiscard]] std::size_t bytes() const { return options_.mib << 20; }
  [[nodiscard]] std::size_t elements() const { return bytes() / sizeof(float); }
  /// "256 MiB"
  [[nodiscard]] std::string size() const { return std::to_string(options_.mib) + " MiB"; }
  /// The number of verdicts, and how many of them were good.
  [[nodiscard]] int verdicts() const { return verdicts_; }
  [[nodiscard]] int good() const { return good_; }

  enum class Verdict { kDemanded, kNone };

  /// Prints a line, and gives the arrays back.
  void measure(const std::string& name, double bytes, Verdict verdict,
               const std::function<Status()>& operation) {
    const auto copy_once = [this] {
      return copy(to_.data(), from_.data(), this->bytes(), stream_);
    };
    std::vector<double> rates;
    std::vector<double> copies;
    for (int warm = 0; warm < 3; ++warm) {
      must(copy_once());
      must(operation());
    }
    for (int rep = 0; rep < options_.reps; ++rep) {
      copies.push_back(2.0 * static_cast<double>(this->bytes()) / seconds(copy_once));
      rates.push_back(bytes / seconds(operation));
    }
    const double rate = median(rates);
    const double copied = median(copies);
    std::printf("%-34s %9.1f MB %9.3f ms %8.0f GB/s %8.0f GB/s copy %7.3f x copy  %s\n",
                name.c_str(), bytes / 1e6, bytes / rate * 1e3, rate / 1e9, copied / 1e9,
                rate / copied, judge(verdict, rate / copied));
    std::fflush(stdout);
    arrays_.free_all();
  }

 private:
  double seconds(const std::function<Status()>& operation) {
    must(begin_.record(stream_));
    must(operation());
    must(end_.record(stream_));
    must(end_.wait());
    float milliseconds = 0;
    must(end_.milliseconds_since(begin_, milliseconds));
    return static_cast<double>(milliseconds) * 1e-3;
  }
  const char* judge(Verdict verdict, double part) {
    if (verdict == Verdict::kNone) return "-";
    ++verdicts_;
    if (part < kLeast) return "below";
    ++good_;
    return "good";
  }
  static double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  Stream stream_;
  Options options_;
  Event begin_, end_;
  DeviceMemory from_, to_;
  Arrays arrays_;
  int verdicts_ = 0;
  int good_ = 0;
};

template <unsigned kMost>
void bench_sum(Bench& bench, Stream stream) {
  Sum<Float32, kMost> operation;
  operation.sum.count = kMost;
  typename Sum<Float32, kMost>::Tensor tensor;
  for (auto& source : tensor.sources) source = bench.arrays().random(bench.elements());
  tensor.out = bench.arrays().random(bench.elements());
  tensor.elements = bench.elements();
  bench.measure("sum of " + std::to_string(kMost) + ", " + bench.size() + " each",
                static_cast<double>(bench.bytes()) * (kMost + 1), Bench::Verdict::kDemanded,
                [&] { return launch(operation, tensor, nullptr, stream); });
}

template <class Operation>
void bench_step(Bench& bench, Stream stream, const std::string& name, Operation operation,
                double bytes_per_element) {
  typename Operation::Tensor t;
  t.values = bench.arrays().random(bench.elements());
  t.gradients[0] = bench.arrays().random(bench.elements());
  t.first = static_cast<float*>(bench.arrays().zeros(bench.bytes()));
  t.second = static_cast<float*>(bench.arrays().zeros(bench.bytes()));
  t.elements = bench.elements();
  bench.measure(name + ", " + bench.size(),
                bytes_per_element * static_cast<double>(bench.elements()),
                Bench::Verdict::kDemanded, [&] { return launch(operation, t, nullptr, stream); });
}

template <class Operation>
Operation sgd() {
  Operation operation;
  operation.step.learning_rate = 0.01F;
  operation.step.momentum = 0.9F;
  operation.step.weight_decay = 1e-4F;
  return operation;
}

template <class Operation>
Operation adamw() {
  Operation operation;
  operation.step.keep = 0.9999F;
  operation.step.beta1 = 0.9F;
  operation.step.rest1 = 0.1F;
  operation.step.beta2 = 0.999F;
  operation.step.rest2 = 0.001F;
  operation.step.step = 1e-3F;
  operation.step.eps = 1e-8F;
  return operation;
}

void bench_codecs(Bench& bench, Stream stream) {
  const std::size_t n = bench.elements();
  const auto elements = static_cast<double>(n);
  const auto codes = [&] { return static_cast<std::uint8_t*>(bench.arrays().zeros(n / 4)); };
  const auto halves = [&] { return static_cast<std::uint16_t*>(bench.arrays().zeros(2 * n)); };
  const auto floats = [&] { return bench.arrays().random(n); };
  {
    const DecodeTwoBit::Tensor t = {floats(), codes(), n};
    bench.measure("2bit decode, " + bench.size(), 4.25 * elements, Bench::Verdict::kDemanded,
                  [&] { return launch(DecodeTwoBit{}, t, nullptr, stream); });
  }
  {
    const AddTwoBit::Tensor t = {floats(), codes(), n};
    bench.measure("2bit decode and add, " + bench.size(), 8.25 * elements, Bench::Verdict::kNone,
                  [&] { return launch(AddTwoBit{}, t, nullptr, stream); });
  }
  {
    const Sum<Bf16, 1>::Tensor t = {{halves()}, floats(), n};
    bench.measure("bf16 decode, " + bench.size(), 6 * elements, Bench::Verdict::kNone,
                  [&] { return launch(Sum<Bf16, 1>(), t, nullptr, stream); });
  }
  {
    const Add<Bf16>::Tensor t = {floats(), halves(), n};
    bench.measure("bf16 decode and add, " + bench.size(), 10 * elements, Bench::Verdict::kNone,
                  [&] { return launch(Add<Bf16>(), t, nullptr, stream); });
  }
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) return false;
    char* end = nullptr;
    const unsigned long value = std::strtoul(argv[i + 1], &end, 10);
    if (*end != '\0' || end == argv[i + 1] || value > 4096) return false;
    if (name == "--reps")
      options.reps = static_cast<int>(value);
    else if (name == "--device")
      options.device = static_cast<int>(value);
    else if (name == "--mib")
      options.mib = value;
    else
      return false;
  }
  return options.reps > 0 && options.mib > 0;
}

void run(Bench& bench, Stream stream) {
  bench_sum<2>(bench, stream);
  bench_sum<4>(bench, stream);
  bench_sum<8>(bench, stream);
  bench_step(bench, stream, "SGD-momentum", sgd<Sgd<Float32, 1>>(), 20);
  bench_step(bench, stream, "AdamW", adamw<Adam<Float32, 1>>(), 28);
  bench_codecs(bench, stream);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: gpu_bench [--device N] [--reps N] [--mib N]\n");
    return 2;
  }
  if (const std::string why = why_no_device(options.device); !why.empty()) {
    std::fprintf(stderr, "gpu_bench: SKIPPED: %s\n", why.c_str());
    return kNoDeviceExit;
  }
  must(use_device(options.device));
  std::printf("gpu_bench: %s\n", describe_device(options.device).c_str());
  UniqueStream stream;
  must(stream.create());
  Bench bench(stream.get(), options);
  run(bench, stream.get());
  std::printf("gpu_bench: %d of %d reach %.2f of the copy's rate\n", bench.good(), bench.verdicts(),
              kLeast);
  return bench.good() == bench.verdicts() ? 0 : kBelowExit;
}
