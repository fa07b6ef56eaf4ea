#include "kvstore/api/dlpack.h"

#include <array>
#include <limits>
#include <optional>
#include <string_view>

#include "core/base/result.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv::dlpack {

namespace {

struct KnownDevice {
  std::int32_t type;
  int device;  ///< dtkv_device
};
constexpr std::array<KnownDevice, 3> kDevices = {{
    {1, DTKV_CPU},        // kDLCPU
    {2, DTKV_CUDA},       // kDLCUDA
    {3, DTKV_CUDA_HOST},  // kDLCUDAHost
}};

struct KnownType {
  std::uint8_t code;
  std::uint8_t bits;
  int dtype;  ///< dtkv_dtype
};
constexpr std::uint8_t kInt = 0;
constexpr std::uint8_t kFloat = 2;
constexpr std::uint8_t kBfloat = 4;
constexpr std::array<KnownType, 5> kTypes = {{
    {kFloat, 32, DTKV_FLOAT32},
    {kFloat, 64, DTKV_FLOAT64},
    {kFloat, 16, DTKV_FLOAT16},
    {kBfloat, 16, DTKV_BFLOAT16},
    {kInt, 64, DTKV_INT64},
}};

std::optional<int> device_of(const Device& device) {
  for (const auto& known : kDevices)
    if (known.type == device.type) return known.device;
  return std::nullopt;
}

std::optional<int> dtype_of(const DataType& type) {
  for (const auto& known : kTypes)
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return known.dtype;
  return std::nullopt;
}

/// None: a dimension is negative, or the product exceeds the address space.
std::optional<std::size_t> count_of(const Tensor& tensor, std::size_t width) {
  const std::size_t most = std::numeric_limits<std::size_t>::max() / 2 / width;
  std::size_t count = 1;
  bool is_empty = false;
  for (std::int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] < 0) return std::nullopt;
    const auto size = static_cast<std::size_t>(tensor.shape[i]);
    is_empty = is_empty || size == 0;
    if (size > 0 && count > most / size) return std::nullopt;
    if (size > 0) count *= size;
  }
  return is_empty ? 0 : count;
}

/// Whether the tensor is contiguous in row-major order.
bool is_compact(const Tensor& tensor) {
  if (!tensor.strides) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

}  // namespace

std::string to_array(const Tensor& tensor, void* stream, dtkv_array& out) {
  const auto device = device_of(tensor.device);
  if (!device)
    return fmt::format(
        "a DLPack tensor is on a device of type {}: CPU (1), CUDA (2) and CUDA's pinned memory of "
        "the host (3) are supported: copy it to one of them",
        tensor.device.type);
  const auto dtype = dtype_of(tensor.dtype);
  if (!dtype)
    return fmt::format(
        "a DLPack tensor has elements of type code {}, {} bits and {} lanes: float32, float64, "
        "float16, bfloat16 and int64 of one lane are supported",
        tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes);
  if (tensor.ndim < 0 || (tensor.ndim > 0 && !tensor.shape)) return "a DLPack tensor has no shape";
  const std::size_t width = data::element_bytes(static_cast<data::Dtype>(*dtype));
  const auto count = count_of(tensor, width);
  if (!count) return "a DLPack tensor has an impossible shape";
  if (*count > 0 && !is_compact(tensor))
    return "a DLPack tensor is not contiguous in row-major order: make a contiguous copy first";
  if (*count > 0 && !tensor.data) return "a DLPack tensor has no data";
  auto* data = static_cast<std::byte*>(tensor.data);
  if (data) data += tensor.byte_offset;
  if (reinterpret_cast<std::uintptr_t>(data) % width != 0)
    return "a DLPack tensor's data are not aligned to its elements: make a contiguous copy first";
  out = {};
  out.data = data;
  out.count = *count;
  out.dtype = *dtype;
  out.device = *device;
  out.device_id = *device == DTKV_CUDA ? tensor.device.id : 0;
  out.stream = *device == DTKV_CPU ? nullptr : stream;
  return {};
}

}  // namespace dt::kv::dlpack
