#include "kvstore/worker/device/arrays.h"

#include <algorithm>

#include "kvstore/compute/cuda/device.h"
#include "kvstore/compute/cuda/device_guard.h"

namespace dt::kv {

namespace {

tl::unexpected<StoreError> failed(const Array& array, const char* what) {
  return store_error(Code::kInternal, fmt::format("CUDA device {}: {}", array.place.device, what));
}

}  // namespace

Status KnownDevices::check(const Arrays& arrays) {
  for (const auto& array : arrays) {
    if (!array.is_ordered()) continue;
    if (array.group)
      if (auto known = check(*array.group); !known) return known;
    const int number = array.place.device;
    auto known = why_not_.find(number);
    if (known == why_not_.end())
      known = why_not_.emplace(number, cuda::why_no_device(number)).first;
    if (known->second.empty()) continue;
    return store_error(Code::kInvalid,
                       fmt::format("an array is on CUDA device {}, which cannot be used ({}): copy "
                                   "it to host memory first",
                                   number, known->second));
  }
  return {};
}

Status HostArrays::make(KnownDevices& devices, bool reads,
                        const std::function<bool(const Array&)>& stays) {
  if (std::ranges::none_of(original_, &Array::is_ordered)) return {};
  if (auto known = devices.check(original_); !known) return known;
  copies_ = original_;
  for (auto& array : copies_) {
    if (!array.is_ordered() || (stays && stays(array))) continue;
    const cuda::DeviceGuard here(array.place.device);
    const Array original = array;
    cuda::Status status;
    if (array.is_on_device()) {
      memories_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes_of(array)));
      array.data = memories_.back().get();
      if (reads && array.count > 0)
        status = cuda::copy(array.data, original.data, bytes_of(array), array.stream);
    }
    array.place = {};
    array.stream = nullptr;
    if (status.ok()) status = cuda::wait(original.stream);
    if (!status.ok()) return failed(original, status.error);
  }
  return {};
}

Status HostArrays::write() const {
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const auto& to = original_[i];
    if (!to.is_on_device() || to.count == 0 || to.data == copies_[i].data) continue;
    const cuda::DeviceGuard here(to.place.device);
    auto status = cuda::copy(to.data, copies_[i].data, bytes_of(to), to.stream);
    if (status.ok()) status = cuda::wait(to.stream);
    if (!status.ok()) return failed(to, status.error);
  }
  return {};
}

}  // namespace dt::kv
