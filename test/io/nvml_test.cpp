#include "io/nvml.h"

#include <functional>

#include "core/protocol/gpu_health.h"
#include "test/support/catch.h"
#include "test/support/fake_driver.h"

using namespace dt;
using namespace std::chrono_literals;
using test::FakeDriver;

TEST_CASE("nvml: every figure of two GPUs", "[nvml]") {
  const FakeDriver driver("ecc 1 3");
  const auto nvml = io::Nvml::open(driver.library());
  REQUIRE(nvml);
  const auto gpus = (*nvml)->read();
  REQUIRE(gpus.size() == 2);
  GpuReport wanted;
  wanted.index = 1;
  wanted.uuid = "GPU-1f2e4a5c";
  wanted.name = "Fake GPU";
  wanted.busy_percent = 93;
  wanted.memory_used = 20ULL << 30;
  wanted.memory_total = 80ULL << 30;
  wanted.temperature_c = 61;
  wanted.power_mw = 512500;
  wanted.ecc_recent = 3;
  wanted.ecc_ever = 4;
  wanted.retired_pages = 2;
  wanted.remapped_rows = 3;
  wanted.held_back = 4;
  CHECK(gpus[1] == wanted);
  CHECK(gpus[0].index == 0);
  CHECK(gpus[0].uuid == "GPU-0f2e4a5c");
  CHECK(troubles_of(gpus[0]).empty());
}

TEST_CASE("nvml: what an old driver's library has no function for is missing, the rest is there",
          "[nvml]") {
  const FakeDriver driver("", DT_FAKE_NVML_OLD);
  const auto nvml = io::Nvml::open(driver.library());
  REQUIRE(nvml);
  const auto gpus = (*nvml)->read();
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[0].temperature_c == 61U);
  CHECK(gpus[0].memory_used == 20ULL << 30);
  CHECK_FALSE(gpus[0].busy_percent);
  CHECK_FALSE(gpus[0].power_mw);
  CHECK_FALSE(gpus[0].ecc_recent);
  CHECK_FALSE(gpus[0].retired_pages);
  CHECK_FALSE(gpus[0].remapped_rows);
  CHECK(troubles_of(gpus[0]).empty());
  const auto began = std::chrono::steady_clock::now();
  (*nvml)->wait(30ms);  // without events
  CHECK(std::chrono::steady_clock::now() - began >= 30ms);
}

TEST_CASE("nvml: a call that fails takes its own figure only", "[nvml]") {
  const auto without = [](const std::string& function) {
    const FakeDriver driver("fail " + function + " 999");
    const auto nvml = io::Nvml::open(driver.library());
    REQUIRE(nvml);
    return (*nvml)->read().at(0);
  };
  const FakeDriver whole_driver;
  const auto nvml = io::Nvml::open(whole_driver.library());
  REQUIRE(nvml);
  const GpuReport whole = (*nvml)->read().at(0);
  const auto check = [&](const char* function, const std::function<void(GpuReport&)>& take) {
    INFO(function);
    GpuReport wanted = whole;
    take(wanted);
    CHECK(without(function) == wanted);
  };
  check("nvmlDeviceGetName", [](GpuReport& r) { r.name.clear(); });
  check("nvmlDeviceGetUUID", [](GpuReport& r) { r.uuid.clear(); });
  check("nvmlDeviceGetUtilizationRates", [](GpuReport& r) { r.busy_percent.reset(); });
  check("nvmlDeviceGetMemoryInfo", [](GpuReport& r) {
    r.memory_used.reset();
    r.memory_total.reset();
  });
  check("nvmlDeviceGetTemperature", [](GpuReport& r) { r.temperature_c.reset(); });
  check("nvmlDeviceGetPowerUsage", [](GpuReport& r) { r.power_mw.reset(); });
  check("nvmlDeviceGetTotalEccErrors", [](GpuReport& r) {
    r.ecc_recent.reset();
    r.ecc_ever.reset();
  });
  check("nvmlDeviceGetRetiredPages", [](GpuReport& r) { r.retired_pages.reset(); });
  check("nvmlDeviceGetRetiredPagesPendingStatus", [](GpuReport&) {});
  check("nvmlDeviceGetRemappedRows", [](GpuReport& r) { r.remapped_rows.reset(); });
  check("nvmlDeviceGetCurrentClocksThrottleReasons", [](GpuReport& r) { r.held_back = 0; });
  check("nvmlEventSetCreate", [](GpuReport&) {});
  check("nvmlDeviceRegisterEvents", [](GpuReport&) {});
}

TEST_CASE("nvml: a GPU that is lost is named, the other goes on, and it may come back", "[nvml]") {
  const FakeDriver driver;
  const auto nvml = io::Nvml::open(driver.library());
  REQUIRE(nvml);
  (void)(*nvml)->read();
  driver.says("lost 1");
  auto gpus = (*nvml)->read();
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[1].unanswered == "GPU is lost");
  CHECK(gpus[1].uuid == "GPU-1f2e4a5c");  // its last known uuid
  CHECK_FALSE(gpus[1].busy_percent);
  CHECK(troubles_of(gpus[1]) == std::vector<std::string>{"GPU is lost"});
  CHECK(gpus[0].unanswered.empty());
  CHECK(gpus[0].busy_percent == 93U);
  driver.says("");
  gpus = (*nvml)->read();
  CHECK(gpus[1].unanswered.empty());
  CHECK(gpus[1].busy_percent == 93U);
}

TEST_CASE("nvml: a GPU that was lost before anybody looked", "[nvml]") {
  const FakeDriver driver("lost 0");
  const auto nvml = io::Nvml::open(driver.library());
  REQUIRE(nvml);
  auto gpus = (*nvml)->read();
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[0].unanswered == "GPU is lost");
  CHECK(gpus[1].unanswered.empty());
  driver.says("");
  gpus = (*nvml)->read();
  CHECK(gpus[0].unanswered.empty());
  CHECK(gpus[0].name == "Fake GPU");
}

TEST_CASE("nvml: what a GPU is to be taken out for is told, each for itself", "[nvml]") {
  const FakeDriver driver;
  const auto nvml = io::Nvml::open(driver.library());
  REQUIRE(nvml);
  const auto troubles = [&](const std::string& script) {
    driver.says(script);
    const auto gpus = (*nvml)->read();
    CHECK(troubles_of(gpus.at(0)).empty());
    return troubles_of(gpus.at(1));
  };
  using Sentences = std::vector<std::string>;
  const std::string waits =
      "memory waits to be taken out of use: reset the GPU or restart the host";
  CHECK(troubles("remap 1") == Sentences{waits});
  CHECK(troubles("retire 1") == Sentences{waits});
  CHECK(troubles("unmappable 1") == Sentences{"rows of its memory cannot be remapped: replace it"});
  CHECK(troubles("").empty());
  driver.says("fail nvmlDeviceGetPowerUsage 16");
  CHECK((*nvml)->read().at(1).unanswered == "GPU requires reset");
}

TEST_CASE("nvml: errors that the driver tells of are counted for their GPU", "[nvml]") {
  const FakeDriver driver("xid 0 43\nxid 1 45\nxid 1 79\nxid 1 31");
  const auto nvml = io::Nvml::open(driver.library());
  REQUIRE(nvml);
  for (int i = 0; i < 5; ++i) (*nvml)->wait(1ms);
  const auto gpus = (*nvml)->read();
  CHECK(gpus.at(0).xid_errors == 1);
  CHECK(gpus.at(0).last_xid == 43);
  CHECK(troubles_of(gpus.at(0)).empty());
  CHECK(gpus.at(1).xid_errors == 3);
  CHECK(gpus.at(1).last_xid == 79);  // a fault, whatever a program does later
}

TEST_CASE("nvml: why there is nothing to watch, and why it cannot be watched", "[nvml]") {
  const auto kind = [](const std::string& library) {
    const auto nvml = io::Nvml::open(library);
    REQUIRE_FALSE(nvml);
    UNSCOPED_INFO(nvml.error().message);
    return nvml.error().kind;
  };
  CHECK(kind("/nowhere/libnvidia-ml.so.1") == ErrorKind::kUnavailable);
  CHECK(kind(FakeDriver("fail nvmlInit_v2 9").library()) == ErrorKind::kUnavailable);
  CHECK(kind(FakeDriver("gpus 0").library()) == ErrorKind::kUnavailable);
  CHECK(kind("libm.so.6") == ErrorKind::kIo);
  CHECK(kind(FakeDriver("fail nvmlDeviceGetCount_v2 999").library()) == ErrorKind::kIo);
  const FakeDriver updated("fail nvmlInit_v2 18");
  const auto nvml = io::Nvml::open(updated.library());
  REQUIRE_FALSE(nvml);
  CHECK(nvml.error().message == "NVML does not start: Driver/library version mismatch");
  CHECK(nvml.error().kind == ErrorKind::kIo);
}
