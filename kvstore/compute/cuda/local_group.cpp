#include "kvstore/compute/cuda/local_group.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kvstore/compute/cuda/device_guard.h"

namespace dt::kv::cuda {

namespace {

constexpr std::size_t kAlignment = 16;  ///< Bytes a thread moves at once.

std::size_t equal_part(std::size_t elements, NcclType type, std::size_t ranks) {
  const std::size_t step = kAlignment / size_of(type);
  return elements / ranks / step * step;
}

void* at(void* data, std::size_t element, NcclType type) {
  return static_cast<char*>(data) + element * size_of(type);
}

}  // namespace

Part part_of(std::size_t elements, NcclType type, std::size_t ranks, std::size_t rank) {
  const std::size_t size = equal_part(elements, type, ranks);
  const std::size_t begin = rank * size;
  return {begin, rank + 1 == ranks ? elements - begin : size};
}

std::string LocalGroup::use(const std::vector<int>& devices) {
  if (devices == devices_ && !devices.empty() && (!comms_ || comms_->failure().empty())) return {};
  const DeviceGuard keep;
  last_.clear();
  comms_.reset();
  devices_.clear();
  if (devices.empty()) return "a group of no devices has nothing to sum";
  for (const int device : devices)
    if (std::count(devices.begin(), devices.end(), device) > 1)
      return "device " + std::to_string(device) + " is in the group twice";
  for (const int device : devices)
    if (std::string why = why_no_device(device); !why.empty()) return why;
  if (devices.size() > 1) {
    if (options_.functions == nullptr) {
      if (std::string why = open_nccl(opened_, options_.library); !why.empty()) return why;
      options_.functions = &opened_;
    }
    comms_ = std::make_unique<NcclComms>(
        NcclComms::Options{options_.functions, devices, options_.deadline});
    for (const int device : devices) {
      last_.push_back(std::make_unique<Event>());
      Status status = use_device(device);
      if (status.ok()) status = last_.back()->create();
      if (!status.ok()) return "device " + std::to_string(device) + ": " + status.error;
    }
    if (std::string why = comms_->begin(); !why.empty()) return why;
  }
  devices_ = devices;
  return {};
}

std::string LocalGroup::exchange(const std::vector<Array>& arrays, std::size_t elements,
                                 NcclType type, bool is_sum) {
  if (std::string why = objection(arrays); !why.empty() || !comms_ || elements == 0) return why;
  const DeviceGuard keep;
  doing_ = is_sum ? "sum arrays" : "gather arrays";
  const std::size_t each = equal_part(elements, type, arrays.size());
  const std::size_t even = each * arrays.size();
  const int number = static_cast<int>(type);
  const int last = static_cast<int>(arrays.size()) - 1;
  const auto calls = [&](const NcclFunctions& nccl, Comm comm, int rank) {
    const Array& array = arrays[static_cast<std::size_t>(rank)];
    void* own = at(array.data, static_cast<std::size_t>(rank) * each, type);
    void* rest = at(array.data, even, type);
    int result = 0;
    if (each > 0)
      result = is_sum
                   ? nccl.ReduceScatter(array.data, own, each, number, kNcclSum, comm, array.stream)
                   : nccl.AllGather(own, array.data, each, number, comm, array.stream);
    if ((result != 0 && result != kNcclInProgress) || even == elements) return result;
    return is_sum ? nccl.Reduce(rest, rest, elements - even, number, kNcclSum, last, comm,
                                array.stream)
                  : nccl.Broadcast(rest, rest, elements - even, number, last, comm, array.stream);
  };
  if (std::string why = comms_->group(doing_, calls); !why.empty()) return why;
  return record(arrays);
}

std::string LocalGroup::wait() {
  const DeviceGuard keep;
  return comms_ ? comms_->wait_for(last_, doing_) : std::string();
}

std::string LocalGroup::check() {
  const DeviceGuard keep;
  return comms_ ? comms_->check(*doing_ != '\0' ? doing_ : "go on") : std::string();
}

std::string LocalGroup::give_up_late() {
  const DeviceGuard keep;
  return comms_ ? comms_->fail_late(doing_) : std::string();
}

void LocalGroup::abort() {
  if (comms_) comms_->abort("what the GPUs of this process exchanged was given up on request");
}

std::string LocalGroup::objection(const std::vector<Array>& arrays) const {
  if (comms_ && !comms_->failure().empty()) return comms_->failure();
  if (devices_.empty()) return "the group has no devices yet";
  if (arrays.size() != devices_.size())
    return std::to_string(arrays.size()) + " arrays for a group of " +
           std::to_string(devices_.size()) + " devices";
  for (const Array& array : arrays)
    if (comms_ && reinterpret_cast<std::uintptr_t>(array.data) % kAlignment != 0)
      return "an array of the group does not begin at a multiple of 16 bytes";
  return {};
}

std::string LocalGroup::record(const std::vector<Array>& arrays) {
  for (std::size_t rank = 0; rank < arrays.size(); ++rank) {
    Status status = use_device(devices_[rank]);
    if (status.ok()) status = last_[rank]->record(arrays[rank].stream);
    if (!status.ok()) {
      comms_->abort("device " + std::to_string(devices_[rank]) + ": " + status.error);
      return comms_->failure();
    }
  }
  return {};
}

}  // namespace dt::kv::cuda
