/// The host form of kvstore/compute/cuda: its checks, and the bits of the CPU's kernels.
#include <random>

#include "kvstore/compute/cuda/device.h"
#include "kvstore/compute/cuda/driver_version.h"
#include "kvstore/compute/kernels/kernels.h"
#include "test/kvstore/compute/cuda/checks.h"
#include "test/support/catch.h"

using namespace dt::kv::cuda;
using dt::kv::difference;
using dt::kv::numbers;

namespace {

using dt::kv::Kernels;
using dt::kv::SimdLevel;

constexpr std::uint64_t kSeed = 20260801;

/// Calls test(kernels, n) for the machine's best level and the baseline.
template <class Test>
void against_kernels(Test test) {
  for (const Kernels* kernels : {&dt::kv::kernels(), dt::kv::kernels(SimdLevel::kBaseline)})
    for (const std::size_t n : kLengths) {
      INFO("level " << static_cast<int>(kernels->level) << ", " << n << " elements");
      test(*kernels, n);
    }
}

template <class T>
const dt::kv::Arithmetic<T>& arithmetic(const Kernels& kernels) {
  if constexpr (std::is_same_v<T, float>)
    return kernels.f32;
  else
    return kernels.f64;
}

/// Sources with weights, for both.
template <class Format, unsigned kMost>
struct Sources {
  using T = typename Format::Math;
  explicit Sources(std::size_t n) {
    for (unsigned k = 0; k < kMost; ++k) {
      values.push_back(numbers<T>(n, 50 + k));
      weights.push_back(static_cast<T>(k % 3 == 0 ? 32 : 7 + k));
    }
    for (unsigned k = 0; k < kMost; ++k) {
      pointers.push_back(values[k].data());
      ours.weights[k] = weights[k];
    }
    ours.count = kMost;
    ours.divisor = 59;
    theirs = {pointers.data(), weights.data(), kMost, T{59}};
  }
  std::vector<std::vector<T>> values;
  std::vector<const T*> pointers;
  std::vector<T> weights;
  dt::kv::WeightedSum<T> theirs;
  Weighted<Format, kMost> ours;
};

}  // namespace

TEST_CASE("cuda: the error names the installed driver and the one that CUDA needs", "[cuda]") {
  CHECK(why_no_driver(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 "
            "UTC 2026\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
            13000, 580) == "the NVIDIA driver is 535.183.01, CUDA 13.0 needs 580 or later");
  CHECK(why_no_driver(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  470.57.02  Release Build",
            12040, 525) == "the NVIDIA driver is 470.57.02, CUDA 12.4 needs 525 or later");
  CHECK(why_no_driver("", 11080, 450) ==
        "no NVIDIA driver on this machine, CUDA 11.8 needs 450 or later");
  CHECK(why_no_driver("v535 x86_64 Kernel", 11080, 450).starts_with("no NVIDIA driver"));
}

TEST_CASE("cuda: the host form computes what plain loops and float64 do", "[cuda]") {
  for (const auto& check : all_checks<OnHost>()) {
    Random random(kSeed);
    Findings findings;
    check.run(findings, random);
    CAPTURE(check.name);
    CHECK(findings.made > 0);
    CHECK(findings.wrong == std::vector<std::string>());
  }
}

TEMPLATE_TEST_CASE("cuda: sums and steps have the bits of the CPU's kernels", "[cuda]", Float32,
                   Float64) {
  using T = typename TestType::Math;
  against_kernels([](const Kernels& kernels, std::size_t n) {
    Sources<TestType, 5> sources(n);
    std::vector<T> theirs(n);
    std::vector<T> ours(n);
    Sum<TestType, 5> sum;
    sum.sum = sources.ours;
    typename Sum<TestType, 5>::Tensor tensor;
    for (unsigned k = 0; k < 5; ++k) tensor.sources[k] = sources.pointers[k];
    tensor.out = ours.data();
    tensor.elements = n;
    CHECK(OnHost::run(sum, {tensor}) ==
          arithmetic<T>(kernels).sum(theirs.data(), sources.theirs, n));
    CHECK(difference(ours, theirs) == "");

    for (const bool nesterov : {false, true})
      for (const T momentum : {T{0}, static_cast<T>(0.9)}) {
        auto their_w = numbers<T>(n, 1);
        auto their_m = numbers<T>(n, 2);
        auto w = their_w;
        auto m = their_m;
        Sgd<TestType, 5> sgd;
        sgd.gradient = sources.ours;
        sgd.step = {static_cast<T>(0.1), momentum, static_cast<T>(1e-3), nesterov};
        typename Sgd<TestType, 5>::Tensor arrays;
        arrays.values = w.data();
        arrays.first = momentum == 0 ? nullptr : m.data();
        for (unsigned k = 0; k < 5; ++k) arrays.gradients[k] = sources.pointers[k];
        arrays.elements = n;
        CHECK(OnHost::run(sgd, {arrays}) ==
              arithmetic<T>(kernels).sgd(their_w.data(), momentum == 0 ? nullptr : their_m.data(),
                                         sources.theirs, sgd.step, n));
        CHECK(difference(w, their_w) == "");
        CHECK(difference(m, their_m) == "");
      }

    for (const bool decoupled : {false, true}) {
      auto their_w = numbers<T>(n, 1);
      auto their_m = numbers<T>(n, 2);
      auto their_v = numbers<T>(n, 3);
      auto w = their_w;
      auto m = their_m;
      auto v = their_v;
      Adam<TestType, 5> adam;
      adam.gradient = sources.ours;
      dt::kv::AdamOptions options;
      options.learning_rate = 0.01;
      options.weight_decay = 0.05;
      options.decoupled = decoupled;
      options.update = 3;
      adam.step = dt::kv::adam_step<T>(options);
      typename Adam<TestType, 5>::Tensor arrays;
      arrays.values = w.data();
      arrays.first = m.data();
      arrays.second = v.data();
      for (unsigned k = 0; k < 5; ++k) arrays.gradients[k] = sources.pointers[k];
      arrays.elements = n;
      CHECK(OnHost::run(adam, {arrays}) ==
            arithmetic<T>(kernels).adam(their_w.data(), their_m.data(), their_v.data(),
                                        sources.theirs, adam.step, n));
      CHECK(difference(w, their_w) == "");
      CHECK(difference(m, their_m) == "");
      CHECK(difference(v, their_v) == "");
    }

    auto their_into = numbers<T>(n, 4);
    auto into = their_into;
    Add<TestType> add;
    add.weight = static_cast<T>(0.3);
    CHECK(
        OnHost::run(add, {{into.data(), sources.pointers[0], n}}) ==
        arithmetic<T>(kernels).add_weighted(their_into.data(), sources.pointers[0], add.weight, n));
    CHECK(difference(into, their_into) == "");
  });
}

TEST_CASE("cuda: codes become what the CPU's codecs make of them", "[cuda]") {
  against_kernels([](const Kernels& kernels, std::size_t n) {
    Random random(n);
    std::vector<std::uint8_t> codes(dt::kv::two_bit_bytes(n));
    for (auto& byte : codes) byte = static_cast<std::uint8_t>(random());
    std::vector<float> out(n, 7);
    std::vector<float> their_out(n, 8);
    DecodeTwoBit decode;
    decode.threshold = 0.25F;
    OnHost::run(decode, {{out.data(), codes.data(), n}});
    kernels.two_bit.decode(their_out.data(), codes.data(), 0.25F, n);
    CHECK(difference(out, their_out) == "");
    AddTwoBit add_two;
    add_two.threshold = 0.25F;
    add_two.weight = 0.3F;
    OnHost::run(add_two, {{out.data(), codes.data(), n}});
    kernels.two_bit.decode_add(their_out.data(), codes.data(), 0.25F, 0.3F, n);
    CHECK(difference(out, their_out) == "");
  });
}

TEMPLATE_TEST_CASE("cuda: 16-bit codes become what the CPU's codec makes of them", "[cuda]", Fp16,
                   Bf16) {
  against_kernels([](const Kernels& kernels, std::size_t n) {
    const auto& codec = std::is_same_v<TestType, Fp16> ? kernels.fp16 : kernels.bf16;
    const auto gradient = numbers<float>(n, 1);
    std::vector<std::uint16_t> codes(n);
    std::vector<float> residual(n);
    codec.encode(codes.data(), residual.data(), gradient.data(), n);
    std::vector<float> out(n);
    std::vector<float> their_out(n);
    OnHost::run(Sum<TestType, 1>(), {{{codes.data()}, out.data(), n}});
    codec.decode(their_out.data(), codes.data(), n);
    CHECK(difference(out, their_out) == "");
    Add<TestType> add;
    add.weight = 0.7F;
    const auto bad = std::count_if(codes.begin(), codes.end(), TestType::is_nonfinite);
    CHECK(OnHost::run(add, {{out.data(), codes.data(), n}}) == static_cast<std::uint64_t>(bad));
    codec.decode_add(their_out.data(), codes.data(), 0.7F, n);
    CHECK(difference(out, their_out) == "");
  });
}

TEST_CASE("cuda: without a device memory is refused with a sentence", "[cuda]") {
  const std::string why = why_no_device();
  if (why.empty()) {
    WARN("SKIPPED: there is a device");
    return;
  }
  CHECK(why.find("no CUDA device") == 0);
  PinnedMemory pinned;
  DeviceMemory device;
  for (const Status status : {pinned.allocate(64), device.allocate(64)}) {
    REQUIRE_FALSE(status.ok());
    CHECK_FALSE(std::string(status.error).empty());
  }
  CHECK(pinned.data() == nullptr);
  CHECK(device.data() == nullptr);
}
