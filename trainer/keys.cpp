#include "trainer/keys.h"

namespace dt::train {

Result<void> checked(int code, const char* doing) {
  if (code == DTKV_OK) return {};
  const auto kind = code == DTKV_UNAVAILABLE ? ErrorKind::kUnavailable
                    : code == DTKV_TIMEOUT   ? ErrorKind::kTimeout
                    : code == DTKV_FENCED    ? ErrorKind::kDenied
                    : code == DTKV_ROLLBACK  ? ErrorKind::kClosed
                                             : ErrorKind::kInvalid;
  return fail(kind, "cannot {}: {}", doing, dtkv_last_error());
}

dtkv_array array_of(const torch::Tensor& tensor) {
  dtkv_array array{};
  const bool is_integer = tensor.scalar_type() == torch::kLong;
  array.data = is_integer ? static_cast<void*>(tensor.data_ptr<std::int64_t>())
                          : static_cast<void*>(tensor.data_ptr<float>());
  array.count = static_cast<std::size_t>(tensor.numel());
  array.dtype = is_integer ? DTKV_INT64 : DTKV_FLOAT32;
  if (tensor.is_cuda()) {
    // What the trainer puts on a device is on libtorch's default stream, which is CUDA's.
    array.device = DTKV_CUDA;
    array.device_id = static_cast<int>(tensor.get_device());
  }
  return array;
}

void KeyTable::add(std::string name, torch::Tensor tensor) {
  names.push_back(std::move(name));
  tensors.push_back(std::move(tensor));
}

std::vector<const char*> KeyTable::keys() const {
  std::vector<const char*> out;
  for (const auto& name : names) out.push_back(name.c_str());
  return out;
}

std::vector<dtkv_array> KeyTable::arrays() const {
  std::vector<dtkv_array> out;
  for (const auto& tensor : tensors) {
    out.push_back(array_of(tensor));
  }
  return out;
}

}  // namespace dt::train
