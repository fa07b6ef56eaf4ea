#include "trainer/keys.h"

namespace dt {

Result<void> checked(int code, const char* doing) {
  if (code == DTKV_OK) return {};
  const auto kind = code == DTKV_UNAVAILABLE ? ErrorKind::kUnavailable
                    : code == DTKV_TIMEOUT   ? ErrorKind::kTimeout
                    : code == DTKV_FENCED    ? ErrorKind::kDenied
                    : code == DTKV_ROLLBACK  ? ErrorKind::kClosed
                                             : ErrorKind::kInvalid;
  return fail(kind, "cannot {}: {}", doing, dtkv_last_error());
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
    out.push_back({tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel()), DTKV_FLOAT32,
                   DTKV_CPU, 0, nullptr});
  }
  return out;
}

}  // namespace dt
