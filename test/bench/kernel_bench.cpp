/// The speed of kvstore/compute/kernels on one core, compared with a plain memcpy of 64 MB.
///
///     kernel_bench [--reps N] [--level baseline|avx2|avx512] [--only TEXT] [--json]
///
/// Each figure is the median of N (7) pairs, copy and kernel in turn, by the thread's CPU time.
///     GB/s      bytes that must be read and written, over time, without a store's own reads
///     x copy    GB/s over the copy's
///     Gelem/s   elements over time
///     x copy    Gelem/s over the copy's: for a codec, its rate over the uncompressed bytes
/// Sizes are those of one array: 64 MB comes from memory, 512 KB from the second-level cache.
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kvstore/compute/kernels/kernels.h"

using namespace dt::kv;

namespace {

constexpr std::size_t kMegabyte = std::size_t{1} << 20;
constexpr std::size_t kLarge = 64 * kMegabyte;
constexpr std::size_t kSmall = kMegabyte / 2;
/// CPU time of one measurement.
constexpr double kEnough = 0.015;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// 64 MB, in huge pages if the system has them, touched; for the whole run.
template <class T>
T* array() {
  void* memory = mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("kernel_bench: no memory");
    std::exit(1);
  }
  madvise(memory, kLarge, MADV_HUGEPAGE);
  std::memset(memory, 0, kLarge);
  return static_cast<T*>(memory);
}

float* random_array(float size) {
  auto* values = array<float>();
  std::uint64_t x = 88172645463325252U;
  for (std::size_t i = 0; i < kLarge / sizeof(float); ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    values[i] = (static_cast<float>(x & 0xffff) / 65536.0F - 0.5F) * size;
  }
  return values;
}

struct Kernel {
  std::string name;
  double bytes;  ///< per element
  std::function<void(const Kernels&, std::size_t)> run;
};

std::vector<Kernel> all_kernels() {
  float* a = random_array(1);
  float* b = random_array(0.5F);
  float* c = random_array(0.25F);
  float* d = random_array(0.1F);
  float* w = random_array(1);
  float* m = array<float>();
  float* v = array<float>();
  const auto sum_of = [=](std::size_t count, float divisor) {
    static const float* sources[4];
    static const float weights[4] = {32, 32, 32, 32};
    sources[0] = a;
    sources[1] = b;
    sources[2] = c;
    sources[3] = d;
    return WeightedSum<float>{sources, divisor == 1 ? nullptr : weights, count, divisor};
  };
  const SgdStep<float> sgd = {1e-3F, 0, 1e-4F, false};
  const SgdStep<float> momentum = {1e-3F, 0.9F, 1e-4F, false};
  const SgdStep<float> nesterov = {1e-3F, 0.9F, 1e-4F, true};
  AdamOptions options;
  options.learning_rate = 1e-3;
  options.update = 10;
  const auto adam = adam_step<float>(options);
  float* r = array<float>();
  auto* codes = array<std::uint16_t>();
  std::vector<Kernel> kernels = {
      {"copy_streaming", 8,
       [=](const Kernels& k, std::size_t n) { k.copy_streaming(w, a, n * sizeof(float)); }},
      {"count_nonfinite", 4,
       [=](const Kernels& k, std::size_t n) {
         if (k.f32.count_nonfinite(a, n) > 0) std::abort();
       }},
      {"scale", 8, [=](const Kernels& k, std::size_t n) { k.f32.scale(w, 1, n); }},
      {"add", 12, [=](const Kernels& k, std::size_t n) { k.f32.add(w, a, n); }},
      {"add_weighted", 12,
       [=](const Kernels& k, std::size_t n) { k.f32.add_weighted(w, a, 0.5F, n); }},
      {"sum of 2", 12, [=](const Kernels& k, std::size_t n) { k.f32.sum(w, sum_of(2, 1), n); }},
      {"mean of 2", 12, [=](const Kernels& k, std::size_t n) { k.f32.sum(w, sum_of(2, 64), n); }},
      {"sum of 4", 20, [=](const Kernels& k, std::size_t n) { k.f32.sum(w, sum_of(4, 1), n); }},
      {"sgd", 12,
       [=](const Kernels& k, std::size_t n) { k.f32.sgd(w, nullptr, sum_of(1, 1), sgd, n); }},
      {"sgd momentum", 20,
       [=](const Kernels& k, std::size_t n) { k.f32.sgd(w, m, sum_of(1, 1), momentum, n); }},
      {"sgd nesterov", 20,
       [=](const Kernels& k, std::size_t n) { k.f32.sgd(w, m, sum_of(1, 1), nesterov, n); }},
      {"sum of 2 + sgd momentum", 24,
       [=](const Kernels& k, std::size_t n) { k.f32.sgd(w, m, sum_of(2, 1), momentum, n); }},
      {"mean of 2 + sgd momentum", 24,
       [=](const Kernels& k, std::size_t n) { k.f32.sgd(w, m, sum_of(2, 64), momentum, n); }},
      {"adam", 28,
       [=](const Kernels& k, std::size_t n) { k.f32.adam(w, m, v, sum_of(1, 1), adam, n); }},
      {"mean of 2 + adam", 32,
       [=](const Kernels& k, std::size_t n) { k.f32.adam(w, m, v, sum_of(2, 64), adam, n); }},
      {"2bit encode", 12.25,
       [=](const Kernels& k, std::size_t n) { k.two_bit.encode(codes, r, a, 0.25F, n); }},
      {"2bit decode", 4.25,
       [=](const Kernels& k, std::size_t n) { k.two_bit.decode(w, codes, 0.25F, n); }},
      {"2bit decode_add", 8.25,
       [=](const Kernels& k, std::size_t n) { k.two_bit.decode_add(w, codes, 0.25F, 1, n); }},
      {"2bit encode + decode_add", 20.5,
       [=](const Kernels& k, std::size_t n) {
         k.two_bit.encode(codes, r, a, 0.25F, n);
         k.two_bit.decode_add(w, codes, 0.25F, 1, n);
       }},
  };
  const auto add_half = [&](const std::string& name, HalfCodec Kernels::*codec) {
    kernels.push_back({name + " encode", 14, [=](const Kernels& k, std::size_t n) {
                         (k.*codec).encode(codes, r, a, n);
                       }});
    kernels.push_back({name + " decode", 6,
                       [=](const Kernels& k, std::size_t n) { (k.*codec).decode(w, codes, n); }});
    kernels.push_back({name + " decode_add", 10, [=](const Kernels& k, std::size_t n) {
                         (k.*codec).decode_add(w, codes, 1, n);
                       }});
    kernels.push_back({name + " encode + decode_add", 24, [=](const Kernels& k, std::size_t n) {
                         (k.*codec).encode(codes, r, a, n);
                         (k.*codec).decode_add(w, codes, 1, n);
                       }});
  };
  add_half("fp16", &Kernels::fp16);
  add_half("bf16", &Kernels::bf16);
  return kernels;
}

double seconds_of(std::size_t calls, const std::function<void()>& call) {
  const double begin = cpu_seconds();
  for (std::size_t i = 0; i < calls; ++i) call();
  return (cpu_seconds() - begin) / static_cast<double>(calls);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Row {
  double gigabytes, copy_bytes, gigaelements, copy_elements, copy_rate;
};

Row measure(const Kernel& kernel, const Kernels& level, std::size_t bytes, std::size_t reps,
            const std::function<void()>& copy) {
  const std::size_t n = bytes / sizeof(float);
  const auto call = [&] { kernel.run(level, n); };
  call();
  const double once = seconds_of(1, call);
  const std::size_t calls = once < kEnough ? static_cast<std::size_t>(kEnough / once) + 1 : 1;
  std::vector<double> rate;
  std::vector<double> ratio;
  std::vector<double> copies;
  for (std::size_t r = 0; r < reps; ++r) {
    const double copied = static_cast<double>(kLarge / sizeof(float)) / seconds_of(1, copy);
    const double computed = static_cast<double>(n) / seconds_of(calls, call);
    rate.push_back(computed * 1e-9);
    ratio.push_back(computed / copied);
    copies.push_back(copied * 1e-9);
  }
  const double elements = median(rate);
  const double to_copy = median(ratio);
  const double copy_bytes = 2 * sizeof(float);
  return {elements * kernel.bytes, to_copy * kernel.bytes / copy_bytes, elements, to_copy,
          median(copies) * copy_bytes};
}

const char* name_of(SimdLevel level) {
  switch (level) {
    case SimdLevel::kBaseline:
      return "baseline";
    case SimdLevel::kAvx2:
      return "avx2";
    case SimdLevel::kAvx512:
      return "avx512";
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t reps = 7;
  std::string only;
  bool json = false;
  const Kernels* level = &kernels();
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--json") {
      json = true;
      continue;
    }
    ++i;
    if (word == "--reps") {
      reps = std::max<std::size_t>(1, std::strtoul(value, nullptr, 10));
    } else if (word == "--only") {
      only = value;
    } else if (word == "--level") {
      level = nullptr;
      for (const auto known : {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512})
        if (std::string_view(value) == name_of(known)) level = kernels(known);
      if (!level) {
        std::fprintf(stderr, "kernel_bench: this machine has no level '%s'\n", value);
        return 2;
      }
    } else {
      std::fprintf(stderr, "kernel_bench: unknown option %s\n", argv[i - 1]);
      return 2;
    }
  }
  auto* from = random_array(1);
  auto* to = array<float>();
  const auto copy = [&] { std::memcpy(to, from, kLarge); };
  if (!json)
    std::printf("%s, %zu pairs\n%-26s %7s %8s %7s %8s %7s %9s\n", name_of(level->level), reps,
                "kernel", "size", "GB/s", "x copy", "Gelem/s", "x copy", "copy GB/s");
  for (const auto& kernel : all_kernels()) {
    if (kernel.name.find(only) == std::string::npos) continue;
    for (const std::size_t bytes : {kLarge, kSmall}) {
      const Row row = measure(kernel, *level, bytes, reps, copy);
      if (json)
        std::printf(
            "{\"kernel\": \"%s\", \"level\": \"%s\", \"bytes\": %zu, \"gb_s\": %.3f, "
            "\"bytes_to_copy\": %.4f, \"gelem_s\": %.4f, \"elements_to_copy\": %.4f, "
            "\"copy_gb_s\": %.3f}\n",
            kernel.name.c_str(), name_of(level->level), bytes, row.gigabytes, row.copy_bytes,
            row.gigaelements, row.copy_elements, row.copy_rate);
      else
        std::printf("%-26s %7s %8.1f %7.2f %8.2f %7.2f %9.1f\n", kernel.name.c_str(),
                    bytes == kLarge ? "64 MB" : "512 KB", row.gigabytes, row.copy_bytes,
                    row.gigaelements, row.copy_elements, row.copy_rate);
    }
  }
  return 0;
}
