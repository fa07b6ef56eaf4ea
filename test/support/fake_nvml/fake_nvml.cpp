/// A libnvidia-ml.so.1 for tests. Its answers are in a file next to it, its own path with ".script"
/// at the end, which is read at each call, so that GPUs change while they are watched:
///
///     gpus 2                 how many there are (2 without this line)
///     fail FUNCTION CODE     the error that this function returns
///     hang FUNCTION          it never returns
///     crash FUNCTION         it kills the process
///     lost N                 GPU N is lost
///     ecc N COUNT            uncorrected errors
///     remap N                a row waits to be remapped
///     unmappable N           a row could not be remapped
///     retire N               a page waits to be retired
///     held N BITS            why its clocks are throttled
///     xid N CODE             an error that is reported once
///
/// With FAKE_NVML_OLD it is an old driver without most of the functions.
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kLost = 15;
constexpr int kNotFound = 6;
constexpr int kTimeout = 10;

using Words = std::vector<std::string>;

std::vector<Words> script() {
  Dl_info self{};
  ::dladdr(reinterpret_cast<void*>(&script), &self);
  std::ifstream file(std::string(self.dli_fname) + ".script");
  std::vector<Words> lines;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    Words words;
    for (std::string word; in >> word;) words.push_back(word);
    if (!words.empty()) lines.push_back(words);
  }
  return lines;
}

unsigned long long number(const std::string& word) {
  return std::strtoull(word.c_str(), nullptr, 0);
}

/// The value after "WHAT KEY", or `otherwise`.
unsigned long long told(const char* what, const std::string& key, unsigned long long otherwise) {
  for (const Words& line : script())
    if (line[0] == what && line.size() > 1 && line[1] == key)
      return line.size() > 2 ? number(line[2]) : 1;
  return otherwise;
}

int enter(const char* function) {
  if (told("hang", function, 0)) ::pause();
  if (told("crash", function, 0)) std::abort();
  return static_cast<int>(told("fail", function, 0));
}

/// Devices are 1, 2, ...: never null.
std::string index_of(void* device) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(device) - 1);
}

int enter(const char* function, void* device) {
  const int status = enter(function);
  return status == 0 && told("lost", index_of(device), 0) ? kLost : status;
}

unsigned gpus() {
  for (const Words& line : script())
    if (line[0] == "gpus" && line.size() > 1) return static_cast<unsigned>(number(line[1]));
  return 2;
}

void copy(char* to, unsigned size, const std::string& text) {
  std::snprintf(to, size, "%s", text.c_str());
}

}  // namespace

#define FAKE(function, ...) \
  extern "C" __attribute__((visibility("default"))) int function(__VA_ARGS__)
#define ENTER(...) \
  if (const int bad_status = enter(__func__ __VA_OPT__(, ) __VA_ARGS__)) return bad_status

#ifdef FAKE_NVML_OLD
FAKE(nvmlInit) {
  ENTER();
  return 0;
}
FAKE(nvmlDeviceGetCount, unsigned* count) {
  ENTER();
  *count = gpus();
  return 0;
}
FAKE(nvmlDeviceGetHandleByIndex, unsigned index, void** device) {
  *device = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
  ENTER(*device);
  return 0;
}
#else
FAKE(nvmlInit_v2) {
  ENTER();
  return 0;
}
FAKE(nvmlDeviceGetCount_v2, unsigned* count) {
  ENTER();
  *count = gpus();
  return 0;
}
FAKE(nvmlDeviceGetHandleByIndex_v2, unsigned index, void** device) {
  *device = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
  ENTER(*device);
  return 0;
}
#endif

FAKE(nvmlShutdown) { return 0; }

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int status) {
  switch (status) {
    case 9:
      return "Driver Not Loaded";
    case kLost:
      return "GPU is lost";
    case 16:
      return "GPU requires reset";
    case 18:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}

FAKE(nvmlDeviceGetName, void* device, char* text, unsigned size) {
  ENTER(device);
  copy(text, size, "Fake GPU");
  return 0;
}
FAKE(nvmlDeviceGetUUID, void* device, char* text, unsigned size) {
  ENTER(device);
  copy(text, size, "GPU-" + index_of(device) + "f2e4a5c");
  return 0;
}
FAKE(nvmlDeviceGetMemoryInfo, void* device, unsigned long long* memory) {
  ENTER(device);
  memory[0] = 80ULL << 30;  // total, free, used
  memory[1] = 60ULL << 30;
  memory[2] = 20ULL << 30;
  return 0;
}
FAKE(nvmlDeviceGetTemperature, void* device, int, unsigned* celsius) {
  ENTER(device);
  *celsius = 61;
  return 0;
}

#ifndef FAKE_NVML_OLD
FAKE(nvmlDeviceGetUtilizationRates, void* device, unsigned* rates) {
  ENTER(device);
  rates[0] = 93;
  rates[1] = 40;
  return 0;
}
FAKE(nvmlDeviceGetPowerUsage, void* device, unsigned* milliwatts) {
  ENTER(device);
  *milliwatts = 512500;
  return 0;
}
FAKE(nvmlDeviceGetTotalEccErrors, void* device, int, int counter, unsigned long long* errors) {
  ENTER(device);
  *errors = told("ecc", index_of(device), 0) + (counter == 1 ? 1 : 0);
  return 0;
}
FAKE(nvmlDeviceGetRetiredPages, void* device, int cause, unsigned* count, unsigned long long*) {
  ENTER(device);
  *count = cause == 0 ? 2 : 0;
  return *count > 0 ? 7 : 0;
}
FAKE(nvmlDeviceGetRetiredPagesPendingStatus, void* device, int* pending) {
  ENTER(device);
  *pending = static_cast<int>(told("retire", index_of(device), 0));
  return 0;
}
FAKE(nvmlDeviceGetRemappedRows, void* device, unsigned* corrected, unsigned* uncorrected,
     unsigned* pending, unsigned* failed) {
  ENTER(device);
  *corrected = 1;
  *uncorrected = 2;
  *pending = static_cast<unsigned>(told("remap", index_of(device), 0));
  *failed = static_cast<unsigned>(told("unmappable", index_of(device), 0));
  return 0;
}
FAKE(nvmlDeviceGetCurrentClocksThrottleReasons, void* device, unsigned long long* bits) {
  ENTER(device);
  *bits = told("held", index_of(device), 4);  // a set power limit: no trouble
  return 0;
}

namespace {
struct Event {
  void* device;
  unsigned long long type;
  unsigned long long data;
  unsigned instances[2];
};
std::string told_events;  // events already reported
}  // namespace

FAKE(nvmlEventSetCreate, void** set) {
  ENTER();
  *set = &told_events;
  return 0;
}
FAKE(nvmlEventSetFree, void*) { return 0; }
FAKE(nvmlDeviceRegisterEvents, void* device, unsigned long long types, void*) {
  ENTER(device);
  return types == 8 ? 0 : kNotFound;
}
FAKE(nvmlEventSetWait_v2, void*, Event* event, unsigned timeout_ms) {
  ENTER();
  for (const Words& line : script()) {
    if (line[0] != "xid" || line.size() < 3) continue;
    const std::string key = line[1] + " " + line[2] + ";";
    if (told_events.find(key) != std::string::npos) continue;
    told_events += key;
    *event = {reinterpret_cast<void*>(static_cast<std::uintptr_t>(number(line[1])) + 1),
              8,
              number(line[2]),
              {0, 0}};
    return 0;
  }
  ::poll(nullptr, 0, static_cast<int>(timeout_ms));
  return kTimeout;
}
#endif
