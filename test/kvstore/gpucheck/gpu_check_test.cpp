#include "kvstore/gpucheck/gpu_check.h"

#include "test/support/catch.h"
#include "test/support/emulated_device/emulated_device.h"
#include "test/support/emulated_nccl/emulated_nccl.h"
#include "test/support/fake_driver.h"

using namespace dt::kv;
using dt::test::FakeDriver;
namespace emulated = dt::test::emulated;

namespace {

/// Two GPUs, small parts.
struct Host {
  explicit Host(int devices = 2) {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    emulated::restart(devices);
    emulated::restart_nccl();
    options.nvml = driver.library();
    options.nccl = &emulated::nccl();
    options.matrix = 64;
    options.copied_bytes = 4096;
    options.ring_elements = 1003;
    options.deadline = std::chrono::milliseconds(200);
  }
  ~Host() {
    emulated::spoil_products(std::nullopt);
    emulated::flush();
    CHECK(emulated::leaks().empty());
    CHECK(emulated::nccl_counts().alive == 0);
  }
  GpuFindings check() {
    parts.clear();
    return check_gpus(options, [this](const std::string& part) { parts.push_back(part); });
  }
  FakeDriver driver;
  GpuCheckOptions options;
  std::vector<std::string> parts;
};

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("gpu check: two GPUs that are well", "[gpucheck]") {
  Host host;
  const GpuFindings found = host.check();
  CHECK(found.why.empty());
  CHECK(found.verdict == GpuVerdict::kWell);
  REQUIRE(found.gpus.size() == 2);
  CHECK(found.gpus[1].device == 1);
  CHECK(found.gpus[1].teraflops > 0);
  CHECK(found.gpus[1].copy_gb_s > 0);
  REQUIRE(found.ring_gb_s);
  CHECK(*found.ring_gb_s > 0);
  CHECK(host.parts ==
        std::vector<std::string>{"the driver's word on the GPUs", "CUDA's start",
                                 "a matrix product on GPU 0", "a copy in the memory of GPU 0",
                                 "a matrix product on GPU 1", "a copy in the memory of GPU 1",
                                 "a sum over 2 GPUs"});
}

TEST_CASE("gpu check: those asked for, and so many as there must be", "[gpucheck]") {
  Host host;
  host.options.devices = {1};
  GpuFindings found = host.check();
  CHECK(found.verdict == GpuVerdict::kWell);
  REQUIRE(found.gpus.size() == 1);
  CHECK(found.gpus[0].device == 1);
  CHECK_FALSE(found.ring_gb_s);
  CHECK(found.ring_skipped == "there is one GPU");
  host.driver.says("ecc 0 2");  // errors of the other GPU
  CHECK(host.check().verdict == GpuVerdict::kWell);
  host.driver.says("gpus 3");
  host.options.devices = {2};
  found = host.check();
  CHECK(found.verdict == GpuVerdict::kUnwell);
  has(found.why, "no CUDA device 2");
  host.options.devices.clear();
  host.options.count = 3;
  CHECK(host.check().why == "CUDA has 2 of the 3 GPUs that must be there");
  host.options.count = 4;
  CHECK(host.check().why == "the driver has 3 of the 4 GPUs that must be there");
}

TEST_CASE("gpu check: a single wrong element of a product is seen", "[gpucheck]") {
  Host host;
  for (const std::size_t element : {0U, 63U, 64U * 64 - 1}) {
    emulated::spoil_products(element);
    const GpuFindings found = host.check();
    CHECK(found.verdict == GpuVerdict::kUnwell);
    CHECK(found.why ==
          "a matrix product on GPU 0: 1 of 64 rows are wrong: the GPU does not compute right, "
          "replace it");
    CHECK(found.gpus.empty());
  }
}

TEST_CASE("gpu check: what the driver says is wrong comes before anything is tried", "[gpucheck]") {
  Host host;
  for (const auto& [script, why] : std::vector<std::pair<std::string, std::string>>{
           {"lost 1", "GPU 1: GPU is lost"},
           {"ecc 0 2", "GPU 0 (GPU-0f2e4a5c): 2 uncorrected ECC errors"},
           {"remap 0 1", "memory waits to be taken out of use"},
           {"held 1 64", "GPU 1 (GPU-1f2e4a5c): its clocks are held back: too hot (hardware)"},
           {"fail nvmlInit_v2 18", "NVML does not start: Driver/library version mismatch"}}) {
    host.driver.says(script);
    const GpuFindings found = host.check();
    CHECK(found.verdict == GpuVerdict::kUnwell);
    has(found.why, why);
    CHECK(host.parts.size() == 1);
  }
  host.options.nvml = "/nowhere/libnvidia-ml.so.1";
  CHECK(host.check().verdict == GpuVerdict::kWell);
}

TEST_CASE("gpu check: GPUs that are well but cannot exchange arrays", "[gpucheck]") {
  Host host;
  SECTION("an error") {
    emulated::nccl_troubles().begin_fails = 2;
    has(host.check().why, "NCCL could not begin on devices 0, 1: unhandled system error");
  }
  SECTION("a link that hangs") {
    emulated::nccl_troubles().missing_rank = 1;
    has(host.check().why, "within 200 ms and was aborted");
  }
  emulated::nccl_troubles().call_fails = 5;
  const GpuFindings found = host.check();
  CHECK(found.verdict == GpuVerdict::kNoLink);
  CHECK(found.gpus.size() == 2);
  CHECK_FALSE(found.ring_gb_s);
}

TEST_CASE("gpu check: a link that damages data is named by the GPU that got it", "[gpucheck]") {
  Host host;
  emulated::nccl_troubles().damaged_rank = 1;
  const GpuFindings found = host.check();
  CHECK(found.verdict == GpuVerdict::kNoLink);
  has(found.why, "a sum over 2 GPUs: that on GPU ");
  has(found.why, " is wrong: a link between two GPUs damages data");
  CHECK_FALSE(found.ring_gb_s);
}

TEST_CASE("gpu check: no GPU, memory that is taken, and a GPU that breaks", "[gpucheck]") {
  SECTION("no GPU") {
    Host host(0);
    const GpuFindings found = host.check();
    CHECK(found.verdict == GpuVerdict::kNoGpu);
    CHECK(found.why == "no CUDA device on this machine");
  }
  SECTION("taken") {
    Host host;
    emulated::limit_device_memory(1000);
    const GpuFindings found = host.check();
    CHECK(found.verdict == GpuVerdict::kUnwell);
    CHECK(found.why == "a matrix product on GPU 0: out of memory");
    emulated::limit_device_memory(std::size_t{1} << 40);
  }
  SECTION("breaks") {
    Host host;
    const GpuFindings found = check_gpus(host.options, [](const std::string& part) {
      if (part == "a copy in the memory of GPU 1")
        emulated::break_devices("uncorrectable ECC error encountered");
    });
    CHECK(found.verdict == GpuVerdict::kUnwell);
    CHECK(found.why == "a copy in the memory of GPU 1: uncorrectable ECC error encountered");
    CHECK(found.gpus.size() == 1);
    emulated::break_devices(nullptr);
  }
}
