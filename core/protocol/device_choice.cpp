#include "core/protocol/device_choice.h"

#include <charconv>

namespace dt {

Result<DeviceChoice> parse_device(std::string_view text) {
  if (text == "cpu") return DeviceChoice{};
  if (text == "auto") return DeviceChoice{DeviceChoice::Kind::kAuto, 0};
  constexpr std::string_view kCuda = "cuda:";
  const auto digits = text.starts_with(kCuda) ? text.substr(kCuda.size()) : std::string_view{};
  DeviceChoice choice{DeviceChoice::Kind::kCuda, 0};
  const auto [end, ec] =
      std::from_chars(digits.data(), digits.data() + digits.size(), choice.number);
  const bool is_number = !digits.empty() && digits.front() != '-' && ec == std::errc{} &&
                         end == digits.data() + digits.size();
  if (!is_number)
    return fail(ErrorKind::kInvalid, "device '{}' is none of cpu, auto, cuda:0, cuda:1, ...", text);
  return choice;
}

}  // namespace dt
