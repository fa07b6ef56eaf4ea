#include "kvstore/compute/cuda/buffer.h"

#include <cstring>
#include <new>
#include <utility>

namespace dt::kv::cuda {

namespace {

constexpr std::align_val_t kHostAlignment{64};

/// Creates the event if there is none.
Status provide(std::unique_ptr<Event>& event) {
  if (event) return {};
  auto fresh = std::make_unique<Event>();
  if (const Status status = fresh->create(); !status.ok()) return status;
  event = std::move(fresh);
  return {};
}

Status allocate_at(DeviceMemory& memory, int device, std::size_t bytes) {
  int before = 0;
  if (const Status status = current_device(before); !status.ok()) return status;
  if (const Status status = use_device(device); !status.ok()) return status;
  const Status status = memory.allocate(bytes);
  if (const Status back = use_device(before); !back.ok()) return back;
  return status;
}

}  // namespace

std::string to_string(Place place) {
  switch (place.kind) {
    case Place::Kind::kHost:
      return "host";
    case Place::Kind::kPinned:
      return "pinned";
    case Place::Kind::kDevice:
      break;
  }
  return "cuda:" + std::to_string(place.device);
}

void Buffer::FreeHost::operator()(void* data) const { ::operator delete(data, kHostAlignment); }

Status Buffer::allocate(Place place, std::size_t bytes) {
  Buffer fresh;
  fresh.place_ = place;
  fresh.bytes_ = bytes;
  if (bytes > 0) {
    Status status;
    switch (place.kind) {
      case Place::Kind::kHost:
        fresh.host_.reset(::operator new(bytes, kHostAlignment, std::nothrow));
        if (!fresh.host_) status = {"no memory"};
        break;
      case Place::Kind::kPinned:
        status = fresh.pinned_.allocate(bytes);
        break;
      case Place::Kind::kDevice:
        status = allocate_at(fresh.device_, place.device, bytes);
        break;
    }
    if (!status.ok()) return status;
  }
  *this = std::move(fresh);
  return {};
}

Area Buffer::area(Stream stream) const {
  void* data = nullptr;
  switch (place_.kind) {
    case Place::Kind::kHost:
      data = host_.get();
      break;
    case Place::Kind::kPinned:
      data = pinned_.data();
      break;
    case Place::Kind::kDevice:
      data = device_.data();
      break;
  }
  return {data, bytes_, place_, stream};
}

Status Transfer::after(const Area& area, Stream own) {
  if (!area.stream || area.stream == own) return {};
  if (const Status status = before_->record(area.stream); !status.ok()) return status;
  return before_->make_wait(own);
}

Status Transfer::start(const Area& to, const Area& from, Stream own) {
  if (to.bytes != from.bytes) return {"a transfer between areas of different sizes"};
  is_under_way_ = false;
  if (to.bytes == 0) return {};
  if (to.place.kind == Place::Kind::kHost && from.place.kind == Place::Kind::kHost) {
    std::memcpy(to.data, from.data, to.bytes);
    return {};
  }
  if (const Status status = provide(before_); !status.ok()) return status;
  if (const Status status = provide(done_); !status.ok()) return status;
  if (const Status status = after(from, own); !status.ok()) return status;
  if (const Status status = after(to, own); !status.ok()) return status;
  if (const Status status = copy(to.data, from.data, to.bytes, own); !status.ok()) return status;
  if (const Status status = done_->record(own); !status.ok()) return status;
  is_under_way_ = true;
  return {};
}

Status Transfer::make_wait(Stream stream) const {
  return is_under_way_ ? done_->make_wait(stream) : Status{};
}

Status Transfer::wait() const { return is_under_way_ ? done_->wait() : Status{}; }

}  // namespace dt::kv::cuda
