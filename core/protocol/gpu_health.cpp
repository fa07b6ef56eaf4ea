#include "core/protocol/gpu_health.h"

#include <algorithm>
#include <array>

#include "core/base/number.h"

namespace dt {
namespace {

/// Bits of GpuReport::held_back, as NVML has them.
struct Holding {
  std::uint64_t bit;
  std::string_view why;
};
constexpr std::array<Holding, 4> kHoldings = {{
    {0x40, "too hot (hardware)"},
    {0x20, "too hot (driver)"},
    {0x80, "the power supply says so"},
    {0x08, "too hot or too much power (hardware)"},
}};

std::string_view name_of_xid(std::uint64_t xid) {
  switch (xid) {
    case 13:
      return "a program's error on the GPU";
    case 31:
      return "a program's page fault";
    case 48:
      return "double bit ECC error";
    case 63:
    case 64:
      return "a row or page of memory is taken out of use";
    case 74:
      return "NVLink error";
    case 79:
      return "the GPU has fallen off the bus";
    case 94:
    case 95:
      return "uncorrected ECC error";
    case 119:
    case 120:
      return "the GPU's own processor does not answer";
    default:
      return {};
  }
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// The GPU that an entry of CUDA_VISIBLE_DEVICES names.
const GpuReport* named(std::string_view entry, const std::vector<GpuReport>& gpus) {
  const auto number = parse_number<std::uint32_t>(entry);
  const GpuReport* found = nullptr;
  for (const GpuReport& gpu : gpus) {
    if (number ? gpu.index != *number : entry.empty() || !gpu.uuid.starts_with(entry)) continue;
    if (found) return nullptr;
    found = &gpu;
  }
  return found;
}

}  // namespace

std::vector<std::string> troubles_of(const GpuReport& gpu) {
  std::vector<std::string> out;
  if (!gpu.unanswered.empty()) out.push_back(gpu.unanswered);
  if (gpu.remapping_failed) out.emplace_back("rows of its memory cannot be remapped: replace it");
  if (gpu.ecc_recent.value_or(0) > 0)
    out.push_back(
        fmt::format("{} uncorrected ECC errors since the driver was loaded", *gpu.ecc_recent));
  if (gpu.remapping_pending || gpu.retirement_pending)
    out.emplace_back("memory waits to be taken out of use: reset the GPU or restart the host");
  if (gpu.xid_errors > 0) {
    const std::string_view name = name_of_xid(gpu.last_xid);
    out.push_back(
        fmt::format("Xid {}{}{}{}", gpu.last_xid, name.empty() ? "" : ": ", name,
                    gpu.xid_errors > 1 ? fmt::format(", {} errors", gpu.xid_errors) : ""));
  }
  const auto holding = std::find_if(kHoldings.begin(), kHoldings.end(), [&](const Holding& one) {
    return (gpu.held_back & one.bit) != 0;
  });
  if (holding != kHoldings.end())
    out.push_back(fmt::format("its clocks are held back: {}", holding->why));
  return out;
}

std::vector<std::uint32_t> visible_gpus(const std::optional<std::string>& cuda_visible_devices,
                                        const std::vector<GpuReport>& gpus) {
  std::vector<std::uint32_t> out;
  if (!cuda_visible_devices) {
    for (const GpuReport& gpu : gpus) out.push_back(gpu.index);
    return out;
  }
  std::string_view left = *cuda_visible_devices;
  for (;;) {
    const std::size_t comma = left.find(',');
    const GpuReport* gpu = named(trimmed(left.substr(0, comma)), gpus);
    if (!gpu || std::find(out.begin(), out.end(), gpu->index) != out.end()) return out;
    out.push_back(gpu->index);
    if (comma == std::string_view::npos) return out;
    left.remove_prefix(comma + 1);
  }
}

}  // namespace dt
