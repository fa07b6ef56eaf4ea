#include "trainer/devices.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ranges>
#include <string_view>

#include "core/base/number.h"

namespace dt::train {

Result<std::vector<DeviceNumber>> parse_devices(const std::string& gpus) {
  if (gpus.empty()) return std::vector<DeviceNumber>{-1};
  std::vector<DeviceNumber> devices;
  for (const auto part : std::views::split(gpus, ',')) {
    const std::string_view word(part.begin(), part.end());
    const DeviceNumber number = parse_number<DeviceNumber>(word).value_or(-1);
    if (word != "cpu" && number < 0)
      return fail(ErrorKind::kInvalid, "--gpus {}: '{}' is no device: 0,1 or cpu,cpu", gpus, word);
    if (!devices.empty() && (number < 0) != (devices.front() < 0))
      return fail(ErrorKind::kInvalid, "--gpus {}: either GPUs or the CPU", gpus);
    if (number >= 0 && std::ranges::find(devices, number) != devices.end())
      return fail(ErrorKind::kInvalid, "--gpus {}: device {} twice", gpus, number);
    devices.push_back(number);
  }
  return devices;
}

Result<std::vector<double>> parse_loads(const std::string& list, std::size_t devices) {
  if (list.empty()) return std::vector<double>(devices, 1);
  std::vector<double> loads;
  for (const auto part : std::views::split(list, ',')) {
    const std::string_view word(part.begin(), part.end());
    const auto load = parse_number<double>(word);
    if (!load || !(*load > 0) || !std::isfinite(*load))
      return fail(ErrorKind::kInvalid, "--work-load-list {}: '{}' is no number above 0", list,
                  word);
    loads.push_back(*load);
  }
  if (loads.size() != devices)
    return fail(ErrorKind::kInvalid, "--work-load-list {}: {} loads for {} devices (--gpus)", list,
                loads.size(), devices);
  return loads;
}

std::vector<std::uint32_t> divide(std::uint32_t samples, const std::vector<double>& loads) {
  const double all = std::accumulate(loads.begin(), loads.end(), 0.0);
  std::vector<std::uint32_t> parts;
  double so_far = 0;
  std::uint32_t given = 0;
  for (const double load : loads) {
    so_far += load;
    const bool is_last = parts.size() + 1 == loads.size();
    const auto until = is_last ? samples : static_cast<std::uint32_t>(samples * (so_far / all));
    parts.push_back(until - given);
    given = until;
  }
  return parts;
}

}  // namespace dt::train
