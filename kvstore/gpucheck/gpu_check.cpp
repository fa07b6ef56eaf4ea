#include "kvstore/gpucheck/gpu_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>

#include "core/protocol/gpu_health.h"
#include "io/nvml.h"
#include "kvstore/compute/cuda/local_group.h"
#include "kvstore/compute/cuda/product.h"

namespace dt::kv {
namespace {

using namespace cuda;

constexpr int kProducts = 4;  ///< Several, since a bad GPU fails more often when it is warm.
constexpr int kCopies = 8;
constexpr int kLargest =
    4;  ///< Largest element: sums of 2048 products of 4 * 4 are exact in a float.
constexpr int kRings = 4;

std::vector<float> small_numbers(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> out(count);
  for (float& x : out)
    x = static_cast<float>(static_cast<int>(random() % (2 * kLargest + 1))) - kLargest;
  return out;
}

std::vector<std::int64_t> times(const std::vector<float>& matrix,
                                const std::vector<std::int64_t>& vector) {
  const std::size_t n = vector.size();
  std::vector<std::int64_t> out(n);
  for (std::size_t row = 0; row < n; ++row)
    for (std::size_t k = 0; k < n; ++k)
      out[row] += static_cast<std::int64_t>(matrix[row * n + k]) * vector[k];
  return out;
}

/// Rows of c that differ from those of a * b, tested with a vector: c x = a (b x). No factor is 0,
/// so that a single wrong element is always detected.
std::size_t wrong_rows(const std::vector<float>& a, const std::vector<float>& b,
                       const std::vector<float>& c, std::size_t n) {
  std::mt19937 random(1);
  std::vector<std::int64_t> x(n);
  for (auto& factor : x) factor = 1 + static_cast<std::int64_t>(random() % 1000);
  for (const float element : c)
    if (!(element > -1e9F && element < 1e9F)) return n;
  const auto wanted = times(a, times(b, x));
  const auto got = times(c, x);
  std::size_t wrong = 0;
  for (std::size_t row = 0; row < n; ++row) wrong += wanted[row] != got[row] ? 1 : 0;
  return wrong;
}

/// The first error, which ends the check.
struct Failure {
  GpuVerdict verdict;
  std::string why;
};

/// The parts, in order.
class Check {
 public:
  Check(const GpuCheckOptions& options, const std::function<void(const std::string&)>& begins)
      : options_(options), begins_(begins) {}

  GpuFindings run() {
    try {
      run_parts();
    } catch (Failure& failure) {
      findings_.verdict = failure.verdict;
      findings_.why = std::move(failure.why);
    }
    return std::move(findings_);
  }

 private:
  struct Timed {
    UniqueStream stream;
    Event begin, end;
  };

  void run_parts() {
    begin("the driver's word on the GPUs");
    check_health();
    begin("CUDA's start");
    const std::vector<int> devices = find_devices();
    for (const int device : devices) {
      GpuFigures figures{device, describe_device(device)};
      must(use_device(device));
      begin(fmt::format("a matrix product on GPU {}", device));
      check_product(figures);
      begin(fmt::format("a copy in the memory of GPU {}", device));
      check_copy(figures);
      findings_.gpus.push_back(std::move(figures));
    }
    if (devices.size() > 1) {
      begin(fmt::format("a sum over {} GPUs", devices.size()));
      check_ring(devices);
    } else {
      findings_.ring_skipped = "there is one GPU";
    }
  }

  void begin(std::string part) {
    part_ = std::move(part);
    begins_(part_);
  }
  void must(Status status) const {
    if (!status.ok())
      throw Failure{GpuVerdict::kUnwell, fmt::format("{}: {}", part_, status.error)};
  }
  /// After a step of the group, whose result is an error text.
  static void linked(std::string why) {
    if (!why.empty()) throw Failure{GpuVerdict::kNoLink, std::move(why)};
  }
  void prepare(Timed& timed) const {
    must(timed.stream.create());
    must(timed.begin.create());
    must(timed.end.create());
  }
  /// Seconds between the two events, once the second has passed.
  double seconds(Timed& timed) const {
    float ms = 0;
    must(timed.end.wait());
    must(timed.end.milliseconds_since(timed.begin, ms));
    return ms > 0 ? ms / 1e3 : 1e-9;
  }

  void check_health() const;
  std::vector<int> find_devices() const;
  void check_product(GpuFigures& figures) const;
  void check_copy(GpuFigures& figures) const;
  void check_ring(const std::vector<int>& devices);

  const GpuCheckOptions& options_;
  const std::function<void(const std::string&)>& begins_;
  std::string part_;
  GpuFindings findings_;
};

/// Checks the driver's health report of the GPUs visible to CUDA; skipped without a driver.
void Check::check_health() const {
  auto nvml = io::Nvml::open(options_.nvml);
  if (!nvml && nvml.error().kind == ErrorKind::kUnavailable) return;
  if (!nvml) throw Failure{GpuVerdict::kUnwell, nvml.error().message};
  const auto gpus = (*nvml)->read();
  const char* variable = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto visible =
      visible_gpus(variable ? std::optional<std::string>(variable) : std::nullopt, gpus);
  if (options_.count && visible.size() < static_cast<std::size_t>(*options_.count))
    throw Failure{GpuVerdict::kUnwell,
                  fmt::format("the driver has {} of the {} GPUs that must be there", visible.size(),
                              *options_.count)};
  for (std::size_t device = 0; device < visible.size(); ++device) {
    const auto& asked = options_.devices;
    if (!asked.empty() &&
        std::find(asked.begin(), asked.end(), static_cast<int>(device)) == asked.end())
      continue;
    const GpuReport& gpu = gpus[visible[device]];
    if (const auto troubles = troubles_of(gpu); !troubles.empty())
      throw Failure{GpuVerdict::kUnwell, fmt::format("GPU {}{}: {}", device,
                                                     gpu.uuid.empty() ? "" : " (" + gpu.uuid + ")",
                                                     fmt::join(troubles, "; "))};
  }
}

/// The GPUs visible to CUDA, or those of the options.
std::vector<int> Check::find_devices() const {
  if (std::string why = why_no_device(); !why.empty())
    throw Failure{GpuVerdict::kNoGpu, std::move(why)};
  std::vector<int> devices = options_.devices;
  if (devices.empty())
    for (int number = 0; why_no_device(number).empty(); ++number) devices.push_back(number);
  for (const int device : devices)
    if (std::string why = why_no_device(device); !why.empty())
      throw Failure{GpuVerdict::kUnwell, std::move(why)};
  if (options_.count && devices.size() < static_cast<std::size_t>(*options_.count))
    throw Failure{GpuVerdict::kUnwell, fmt::format("CUDA has {} of the {} GPUs that must be there",
                                                   devices.size(), *options_.count)};
  return devices;
}

void Check::check_product(GpuFigures& figures) const {
  const auto n = static_cast<std::size_t>(options_.matrix);
  const std::size_t bytes = n * n * sizeof(float);
  const auto a = small_numbers(n * n, 2);
  const auto b = small_numbers(n * n, 3);
  std::vector<float> c(n * n);
  DeviceMemory on_a, on_b, on_c;
  for (DeviceMemory* memory : {&on_a, &on_b, &on_c}) must(memory->allocate(bytes));
  Timed timed;
  prepare(timed);
  const Stream stream = timed.stream.get();
  must(copy(on_a.data(), a.data(), bytes, stream));
  must(copy(on_b.data(), b.data(), bytes, stream));
  must(fill(on_c.data(), 0xff, bytes, stream));  // NaN wherever nothing is written
  const auto product = [&] {
    return multiply(static_cast<float*>(on_a.data()), static_cast<float*>(on_b.data()),
                    static_cast<float*>(on_c.data()), options_.matrix, stream);
  };
  must(product());
  must(timed.begin.record(stream));
  for (int i = 0; i < kProducts; ++i) must(product());
  must(timed.end.record(stream));
  must(copy(c.data(), on_c.data(), bytes, stream));
  must(wait(stream));
  const double operations = 2.0 * kProducts * static_cast<double>(n * n) * static_cast<double>(n);
  figures.teraflops = operations / seconds(timed) / 1e12;
  if (const std::size_t wrong = wrong_rows(a, b, c, n); wrong > 0)
    throw Failure{
        GpuVerdict::kUnwell,
        fmt::format("{}: {} of {} rows are wrong: the GPU does not compute right, replace it",
                    part_, wrong, n)};
}

void Check::check_copy(GpuFigures& figures) const {
  DeviceMemory from, to;
  must(from.allocate(options_.copied_bytes));
  must(to.allocate(options_.copied_bytes));
  Timed timed;
  prepare(timed);
  const Stream stream = timed.stream.get();
  const auto once = [&] { return copy(to.data(), from.data(), from.size(), stream); };
  must(fill(from.data(), 1, from.size(), stream));
  must(once());
  must(timed.begin.record(stream));
  for (int i = 0; i < kCopies; ++i) must(once());
  must(timed.end.record(stream));
  const double bytes = 2.0 * kCopies * static_cast<double>(from.size());
  figures.copy_gb_s = bytes / seconds(timed) / 1e9;
}

/// Sums over all GPUs and gathers the sum: of whole numbers, exact in any order.
void Check::check_ring(const std::vector<int>& devices) {
  LocalGroup group({.functions = options_.nccl, .deadline = options_.deadline});
  linked(group.use(devices));
  const std::size_t elements = options_.ring_elements;
  const std::size_t bytes = elements * sizeof(float);
  std::vector<float> sum(elements);
  std::vector<DeviceMemory> memory(devices.size());
  std::vector<std::unique_ptr<Timed>> timed;
  std::vector<LocalGroup::Array> arrays;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto values = small_numbers(elements, static_cast<std::uint32_t>(i));
    for (std::size_t e = 0; e < elements; ++e) sum[e] += values[e];
    must(use_device(devices[i]));
    must(memory[i].allocate(bytes));
    timed.push_back(std::make_unique<Timed>());
    prepare(*timed[i]);
    const Stream stream = timed[i]->stream.get();
    must(copy(memory[i].data(), values.data(), bytes, stream));
    must(wait(stream));
    arrays.push_back({memory[i].data(), stream});
  }
  const auto round = [&] {
    linked(group.reduce_scatter(arrays, elements, NcclType::kFloat32));
    linked(group.all_gather(arrays, elements, NcclType::kFloat32));
  };
  round();
  linked(group.wait());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    std::vector<float> got(elements);
    must(use_device(devices[i]));
    must(copy(got.data(), memory[i].data(), bytes, arrays[i].stream));
    must(wait(arrays[i].stream));
    if (got != sum)
      throw Failure{GpuVerdict::kNoLink,
                    fmt::format("{}: that on GPU {} is wrong: a link between two GPUs damages data",
                                part_, devices[i])};
  }
  must(use_device(devices[0]));
  must(timed[0]->begin.record(arrays[0].stream));
  for (int i = 0; i < kRings; ++i) round();
  must(timed[0]->end.record(arrays[0].stream));
  linked(group.wait());
  const double took = seconds(*timed[0]);
  findings_.ring_gb_s = kRings * static_cast<double>(bytes) / took / 1e9;
}

}  // namespace

GpuFindings check_gpus(const GpuCheckOptions& options,
                       const std::function<void(const std::string&)>& begins) {
  return Check(options, begins).run();
}

}  // namespace dt::kv
