#include "core/protocol/gpu_health.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/base/lookup.h"
#include "core/base/number.h"
#include "core/files/host_names.h"
#include "core/files/ranges.h"

namespace dt {
namespace {

/// Bits of GpuReport::held_back, as NVML has them.
constexpr std::array<std::pair<std::uint64_t, std::string_view>, 4> kHoldings = {{
    {0x40, "too hot (hardware)"},
    {0x20, "too hot (driver)"},
    {0x80, "the power supply says so"},
    {0x08, "too hot or too much power (hardware)"},
}};

/// Errors of the program that used the GPU, or of its end: the GPU works.
const std::map<std::uint64_t, std::string_view> kProgramXids = {
    {13, "a program's error on the GPU"},
    {31, "a program's page fault"},
    {43, "a program's error, which ended its work on the GPU"},
    {45, "a program's work was removed, as when it is killed"},
    {68, "a program's error in the video decoder"},
    {109, "a program's work did not make room for another's in time"},
};

const std::map<std::uint64_t, std::string_view> kXids = {
    {48, "double bit ECC error"},
    {63, "a row or page of memory is taken out of use"},
    {64, "a row or page of memory is taken out of use"},
    {74, "NVLink error"},
    {79, "the GPU has fallen off the bus"},
    {92, "many corrected ECC errors"},
    {94, "uncorrected ECC error"},
    {95, "uncorrected ECC error"},
    {119, "the GPU's own processor does not answer"},
    {120, "the GPU's own processor does not answer"},
    {140, "uncorrected ECC error"},
};

std::string xid_text(const GpuReport& gpu, std::string_view name) {
  return fmt::format("Xid {}{}{}{}", gpu.last_xid, name.empty() ? "" : ": ", name,
                     gpu.xid_errors > 1 ? fmt::format(", {} errors", gpu.xid_errors) : "");
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

bool is_programs_xid(std::uint64_t xid) { return kProgramXids.contains(xid); }

std::string programs_error_of(const GpuReport& gpu) {
  if (gpu.xid_errors == 0 || !is_programs_xid(gpu.last_xid)) return {};
  return xid_text(gpu, value_in(kProgramXids, gpu.last_xid));
}

std::vector<std::string> troubles_of(const GpuReport& gpu) {
  std::vector<std::string> out;
  if (!gpu.unanswered.empty()) out.push_back(gpu.unanswered);
  if (gpu.remapping_failed) out.emplace_back("rows of its memory cannot be remapped: replace it");
  if (gpu.ecc_recent.value_or(0) > 0)
    out.push_back(
        fmt::format("{} uncorrected ECC errors since the driver was loaded", *gpu.ecc_recent));
  if (gpu.remapping_pending || gpu.retirement_pending)
    out.emplace_back("memory waits to be taken out of use: reset the GPU or restart the host");
  if (gpu.xid_errors > 0 && !is_programs_xid(gpu.last_xid))
    out.push_back(xid_text(gpu, value_in(kXids, gpu.last_xid)));
  const auto holding = std::ranges::find_if(
      kHoldings, [&](const auto& one) { return (gpu.held_back & one.first) != 0; });
  if (holding != kHoldings.end())
    out.push_back(fmt::format("its clocks are held back: {}", holding->second));
  return out;
}

std::vector<std::uint32_t> visible_gpus(const std::optional<std::string>& cuda_visible_devices,
                                        const std::vector<GpuReport>& gpus) {
  std::vector<std::uint32_t> out;
  if (!cuda_visible_devices) {
    for (const GpuReport& gpu : gpus) out.push_back(gpu.index);
    return out;
  }
  for (std::string_view left = *cuda_visible_devices; !left.empty();) {
    const GpuReport* gpu = named(trimmed(host_names::take_until(left, ',')), gpus);
    if (!gpu || std::ranges::count(out, gpu->index) > 0) break;
    out.push_back(gpu->index);
  }
  return out;
}

Result<std::vector<std::uint32_t>> chosen_gpus(
    const std::string& list, const std::optional<std::string>& cuda_visible_devices,
    const std::vector<GpuReport>& gpus) {
  const std::vector<std::uint32_t> all = visible_gpus(cuda_visible_devices, gpus);
  if (list.empty()) return all;
  const auto chosen = gpu_numbers(list);
  const auto is_seen = [&all](std::uint32_t gpu) { return std::ranges::count(all, gpu) > 0; };
  if (chosen && std::ranges::all_of(*chosen, is_seen)) return *chosen;
  if (gpus.empty())
    return fail(ErrorKind::kUnavailable, "gpus={}: this host's driver lists no GPU", list);
  return fail(ErrorKind::kUnavailable, "gpus={}: this host has {}GPUs {}", list,
              all.size() < gpus.size() ? "by its CUDA_VISIBLE_DEVICES only " : "",
              all.empty() ? "none" : fold_numbers({all.begin(), all.end()}));
}

std::string deal_gpus(const std::vector<GpuReport>& gpus, const std::vector<std::uint32_t>& all,
                      GpuShare share, std::uint32_t slot) {
  if (all.empty()) return {};
  const std::size_t equal = std::max<std::size_t>(1, all.size() / std::max(1U, share.workers));
  const std::size_t count = share.per_worker > 0 ? share.per_worker : equal;
  std::vector<std::string> own;
  for (std::size_t i = 0; i < std::min(count, all.size()); ++i) {
    const std::uint32_t number = all[(slot * count + i) % all.size()];
    own.push_back(std::ranges::find(gpus, number, &GpuReport::index)->uuid);
  }
  return fmt::format("{}", fmt::join(own, ","));
}

}  // namespace dt
