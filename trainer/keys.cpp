#include "trainer/keys.h"

namespace dt::train {

Error error_of(const dtkv::Error& error, const char* doing) {
  const auto kind = error.code() == DTKV_UNAVAILABLE ? ErrorKind::kUnavailable
                    : error.code() == DTKV_TIMEOUT   ? ErrorKind::kTimeout
                    : error.code() == DTKV_FENCED    ? ErrorKind::kDenied
                    : error.code() == DTKV_ROLLBACK  ? ErrorKind::kClosed
                                                     : ErrorKind::kInvalid;
  return {kind, fmt::format("cannot {}: {}", doing, error.what())};
}

dtkv_array array_of(const torch::Tensor& tensor) {
  dtkv_array array{};
  const bool is_integer = tensor.scalar_type() == torch::kLong;
  array.data = is_integer ? static_cast<void*>(tensor.data_ptr<std::int64_t>())
                          : static_cast<void*>(tensor.data_ptr<float>());
  array.count = static_cast<std::size_t>(tensor.numel());
  array.dtype = is_integer ? DTKV_INT64 : DTKV_FLOAT32;
  if (tensor.is_cuda()) {
    // The trainer's work on a device is on libtorch's default stream, which is CUDA's.
    array.device = DTKV_CUDA;
    array.device_id = static_cast<int>(tensor.get_device());
  }
  return array;
}

void KeyTable::add(std::string name, torch::Tensor tensor) {
  names.push_back(std::move(name));
  tensors.push_back(std::move(tensor));
}

std::vector<dtkv::Entry> KeyTable::entries() const {
  std::vector<dtkv::Entry> out;
  for (std::size_t i = 0; i < names.size(); ++i) out.emplace_back(names[i], array_of(tensors[i]));
  return out;
}

}  // namespace dt::train
