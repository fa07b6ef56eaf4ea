/// DLPack's structs (dmlc/dlpack, include/dlpack/dlpack.h, ABI version 1), declared here by their
/// layout so that a user's own dlpack.h can be included next to dtkv.h; and their conversion to a
/// dtkv_array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kvstore/dtkv.h"

namespace dt::kv::dlpack {

struct Device {
  std::int32_t type;  ///< DLDeviceType
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;  ///< DLDataTypeCode
  std::uint8_t bits;
  std::uint16_t lanes;
};

/// DLTensor: unchanged in all versions, and the begin of DLManagedTensor.
struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  const std::int64_t* shape;
  const std::int64_t* strides;  ///< In elements; null: row-major and compact.
  std::uint64_t byte_offset;
};

/// DLManagedTensorVersioned. The fields after `version` depend on its major version.
struct ManagedTensor {
  struct {
    std::uint32_t major;
    std::uint32_t minor;
  } version;
  void* manager;
  void (*deleter)(ManagedTensor* self);
  std::uint64_t flags;
  Tensor tensor;
};
constexpr std::uint32_t kMajorVersion = 1;
constexpr std::uint64_t kReadOnly = 1;  ///< A bit of `flags`.

static_assert(sizeof(void*) != 8 ||
              (offsetof(Tensor, ndim) == 16 && offsetof(Tensor, shape) == 24 &&
               offsetof(Tensor, byte_offset) == 40 && sizeof(Tensor) == 48));
static_assert(sizeof(void*) != 8 ||
              (offsetof(ManagedTensor, flags) == 24 && offsetof(ManagedTensor, tensor) == 32));

/// Sets `out` to the tensor's memory; "" or one sentence with the cause and the remedy.
[[nodiscard]] std::string to_array(const Tensor& tensor, void* stream, dtkv_array& out);

}  // namespace dt::kv::dlpack
