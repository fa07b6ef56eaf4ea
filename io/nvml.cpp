#include "io/nvml.h"

#include <dlfcn.h>
#include <poll.h>

#include <array>
#include <cstdlib>

#include "core/protocol/gpu_health.h"

namespace dt::io {

// The parts of nvml.h that we need. Names and numbers are the driver's and do not change between
// versions.
namespace nvml_h {

using NvmlStatus = int;
using Count = unsigned long long;
constexpr NvmlStatus kSuccess = 0;
constexpr NvmlStatus kNotSupported = 3;
constexpr NvmlStatus kInsufficientSize = 7;
constexpr NvmlStatus kDriverNotLoaded = 9;
constexpr NvmlStatus kTimeout = 10;
constexpr NvmlStatus kGpuIsLost = 15;
constexpr NvmlStatus kResetRequired = 16;

using Device = void*;
using EventSet = void*;
struct Utilization {
  unsigned gpu = 0;
  unsigned memory = 0;
};
struct Memory {
  Count total = 0;
  Count free = 0;
  Count used = 0;
};
struct EventData {
  Device device = nullptr;
  Count type = 0;
  Count data = 0;
  unsigned gpu_instance = 0;
  unsigned compute_instance = 0;
};
constexpr Count kXidEvent = 8;
constexpr int kGpuSensor = 0;
constexpr int kUncorrected = 1;
constexpr int kSinceDriverLoad = 0;
constexpr int kEver = 1;
constexpr std::array<int, 2> kRetirementCauses = {0, 1};  ///< Single bit errors, double bit error.
constexpr unsigned kNameSize = 96;

/// A function of the library, or none if the driver is too old to have it.
template <class... Args>
class Call {
 public:
  /// `old_name`: the one that drivers before had.
  Call(void* library, const char* name, const char* old_name = nullptr)
      : function_(reinterpret_cast<Function>(::dlsym(library, name))) {
    if (!function_ && old_name) function_ = reinterpret_cast<Function>(::dlsym(library, old_name));
  }
  [[nodiscard]] bool is_there() const { return function_ != nullptr; }
  /// kNotSupported if there is no such function.
  NvmlStatus operator()(Args... args) const {
    return function_ ? function_(args...) : kNotSupported;
  }

 private:
  using Function = NvmlStatus (*)(Args...);
  Function function_;
};

}  // namespace nvml_h

using namespace nvml_h;

struct Nvml::Library {
  explicit Library(void* opened) : handle(opened) {}
  ~Library() {
    if (is_open) (void)shutdown();
    ::dlclose(handle);
  }
  [[nodiscard]] std::string words(NvmlStatus status) const {
    const char* text = error_string ? error_string(status) : nullptr;
    return text ? text : fmt::format("NVML's error {}", status);
  }
  void ask(Device device, GpuReport& report) const {
    // One answer that the GPU is lost or needs a reset is enough.
    const auto answered = [&](NvmlStatus status) {
      if (status == kGpuIsLost || status == kResetRequired) report.unanswered = words(status);
      return status == kSuccess;
    };
    Utilization busy;
    if (answered(utilization(device, &busy))) report.busy_percent = busy.gpu;
    Memory bytes;
    if (answered(memory(device, &bytes))) {
      report.memory_used = bytes.used;
      report.memory_total = bytes.total;
    }
    unsigned number = 0;
    if (answered(temperature(device, kGpuSensor, &number))) report.temperature_c = number;
    if (answered(power(device, &number))) report.power_mw = number;
    Count errors = 0;
    if (answered(ecc_errors(device, kUncorrected, kSinceDriverLoad, &errors)))
      report.ecc_recent = errors;
    if (answered(ecc_errors(device, kUncorrected, kEver, &errors))) report.ecc_ever = errors;
    for (const int cause : kRetirementCauses) {
      unsigned pages = 0;
      const NvmlStatus status = retired_pages(device, cause, &pages, nullptr);
      if (status == kInsufficientSize || answered(status))
        report.retired_pages = report.retired_pages.value_or(0) + pages;
    }
    int pending = 0;
    if (answered(retirement_pending(device, &pending))) report.retirement_pending = pending != 0;
    unsigned corrected = 0, uncorrected = 0, waiting = 0, failed = 0;
    if (answered(remapped_rows(device, &corrected, &uncorrected, &waiting, &failed))) {
      report.remapped_rows = corrected + uncorrected;
      report.remapping_pending = waiting != 0;
      report.remapping_failed = failed != 0;
    }
    Count reasons = 0;
    if (answered(throttle_reasons(device, &reasons))) report.held_back = reasons;
  }

  void* const handle;
  bool is_open = false;  ///< Between init and shutdown.
  const char* (*const error_string)(NvmlStatus) =
      reinterpret_cast<const char* (*)(NvmlStatus)>(::dlsym(handle, "nvmlErrorString"));
  Call<> init{handle, "nvmlInit_v2", "nvmlInit"};
  Call<> shutdown{handle, "nvmlShutdown"};
  Call<unsigned*> count{handle, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"};
  Call<unsigned, Device*> by_index{handle, "nvmlDeviceGetHandleByIndex_v2",
                                   "nvmlDeviceGetHandleByIndex"};
  Call<Device, char*, unsigned> name{handle, "nvmlDeviceGetName"};
  Call<Device, char*, unsigned> uuid{handle, "nvmlDeviceGetUUID"};
  Call<Device, Utilization*> utilization{handle, "nvmlDeviceGetUtilizationRates"};
  Call<Device, Memory*> memory{handle, "nvmlDeviceGetMemoryInfo"};
  Call<Device, int, unsigned*> temperature{handle, "nvmlDeviceGetTemperature"};
  Call<Device, unsigned*> power{handle, "nvmlDeviceGetPowerUsage"};
  Call<Device, int, int, Count*> ecc_errors{handle, "nvmlDeviceGetTotalEccErrors"};
  Call<Device, int, unsigned*, Count*> retired_pages{handle, "nvmlDeviceGetRetiredPages"};
  Call<Device, int*> retirement_pending{handle, "nvmlDeviceGetRetiredPagesPendingStatus"};
  Call<Device, unsigned*, unsigned*, unsigned*, unsigned*> remapped_rows{
      handle, "nvmlDeviceGetRemappedRows"};
  Call<Device, Count*> throttle_reasons{handle, "nvmlDeviceGetCurrentClocksEventReasons",
                                        "nvmlDeviceGetCurrentClocksThrottleReasons"};
  Call<EventSet*> make_events{handle, "nvmlEventSetCreate"};
  Call<EventSet> free_events{handle, "nvmlEventSetFree"};
  Call<Device, Count, EventSet> register_events{handle, "nvmlDeviceRegisterEvents"};
  Call<EventSet, EventData*, unsigned> wait_for_event{handle, "nvmlEventSetWait_v2",
                                                      "nvmlEventSetWait"};
};

struct Nvml::Gpu {
  Device device = nullptr;
  GpuReport known;  ///< Constant properties and the errors counted so far.
};

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}

Nvml::~Nvml() {
  if (events_) (void)library_->free_events(events_);
}

Result<std::unique_ptr<Nvml>> Nvml::open(const std::string& library) {
  const char* named = std::getenv(kNvmlVariable);
  const std::string path = !library.empty() ? library : named ? named : "libnvidia-ml.so.1";
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = ::dlerror();
    return fail(ErrorKind::kUnavailable, "no NVIDIA driver here: {}", why ? why : path);
  }
  auto opened = std::make_unique<Library>(handle);
  if (!opened->init.is_there() || !opened->count.is_there() || !opened->by_index.is_there())
    return fail(ErrorKind::kIo, "{} is no NVML, or too old", path);
  const NvmlStatus status = opened->init();
  if (status != kSuccess) {
    const auto kind = status == kDriverNotLoaded ? ErrorKind::kUnavailable : ErrorKind::kIo;
    return fail(kind, "NVML does not start: {}", opened->words(status));
  }
  opened->is_open = true;
  std::unique_ptr<Nvml> nvml(new Nvml(std::move(opened)));
  if (auto found = nvml->find_gpus(); !found) return tl::unexpected(found.error());
  return nvml;
}

Result<void> Nvml::find_gpus() {
  unsigned count = 0;
  if (const NvmlStatus status = library_->count(&count); status != kSuccess)
    return fail(ErrorKind::kIo, "NVML cannot count the GPUs: {}", library_->words(status));
  if (count == 0) return fail(ErrorKind::kUnavailable, "the NVIDIA driver has no GPU");
  gpus_.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    gpus_[i].known.index = i;
    identify(gpus_[i]);
  }
  ask_of_errors();
  return {};
}

void Nvml::identify(Gpu& gpu) {
  const NvmlStatus status = library_->by_index(gpu.known.index, &gpu.device);
  gpu.known.unanswered.clear();
  if (status != kSuccess) {
    gpu.device = nullptr;
    gpu.known.unanswered = library_->words(status);
    return;
  }
  std::array<char, kNameSize> text{};
  if (library_->name(gpu.device, text.data(), kNameSize) == kSuccess) gpu.known.name = text.data();
  if (library_->uuid(gpu.device, text.data(), kNameSize) == kSuccess) gpu.known.uuid = text.data();
}

void Nvml::ask_of_errors() {
  if (!library_->wait_for_event.is_there() || library_->make_events(&events_) != kSuccess) {
    events_ = nullptr;
    return;
  }
  bool any = false;
  for (const Gpu& gpu : gpus_)
    any |= gpu.device && library_->register_events(gpu.device, kXidEvent, events_) == kSuccess;
  if (any) return;
  (void)library_->free_events(events_);
  events_ = nullptr;
}

std::vector<GpuReport> Nvml::read() {
  std::vector<GpuReport> out;
  for (Gpu& gpu : gpus_) {
    if (!gpu.device) identify(gpu);
    out.push_back(gpu.known);
    if (gpu.device) library_->ask(gpu.device, out.back());
  }
  return out;
}

void Nvml::wait(std::chrono::milliseconds limit) {
  // Waits also after an error: the caller must not spin on repeated errors.
  const auto end = std::chrono::steady_clock::now() + limit;
  if (events_) {
    EventData event;
    const auto ms = static_cast<unsigned>(limit.count());
    const NvmlStatus status = library_->wait_for_event(events_, &event, ms);
    if (status == kSuccess && (event.type & kXidEvent) != 0) {
      for (Gpu& gpu : gpus_)
        if (gpu.device == event.device) {
          ++gpu.known.xid_errors;
          if (gpu.known.last_xid == 0 || !is_programs_xid(event.data))
            gpu.known.last_xid = event.data;
        }
      return;
    }
    if (status == kTimeout) return;
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  if (left.count() > 0) ::poll(nullptr, 0, static_cast<int>(left.count()));
}

}  // namespace dt::io
