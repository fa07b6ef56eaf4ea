#include "core/protocol/device_choice.h"

#include "core/base/number.h"
#include "core/files/hosts.h"

namespace dt {

Result<DeviceChoice> parse_device(std::string_view text) {
  if (text == "cpu") return DeviceChoice{};
  if (text == "auto") return DeviceChoice{DeviceChoice::Kind::kAuto, 0};
  for (const std::string_view begin : {"cuda:", "auto:"}) {
    const auto digits = text.starts_with(begin) ? text.substr(begin.size()) : std::string_view{};
    const auto number = parse_number<int>(digits);
    if (number && digits.front() != '-')
      return DeviceChoice{begin == "cuda:" ? DeviceChoice::Kind::kCuda : DeviceChoice::Kind::kAuto,
                          *number};
  }
  return fail(ErrorKind::kInvalid, "device '{}' is none of cpu, auto, cuda:0, cuda:1, ...", text);
}

std::optional<std::uint32_t> gpu_of_host(std::string_view list, int device) {
  const auto numbers = gpu_numbers(list);
  const auto at = static_cast<std::size_t>(device);
  return numbers && at < numbers->size() ? std::optional((*numbers)[at]) : std::nullopt;
}

}  // namespace dt
