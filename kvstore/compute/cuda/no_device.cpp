/// device.h, launch.h and product.h in a build without CUDA: there is no device, and every call
/// returns this error.
#include "kvstore/compute/cuda/codecs.h"
#include "kvstore/compute/cuda/cuda_steps.h"
#include "kvstore/compute/cuda/device.h"
#include "kvstore/compute/cuda/launch.h"
#include "kvstore/compute/cuda/launch_list.h"
#include "kvstore/compute/cuda/product.h"
#include "kvstore/compute/cuda/sum.h"

namespace dt::kv::cuda {

namespace {
constexpr Status kWithoutCuda = {"no CUDA device: this program was built without CUDA"};
}  // namespace

std::string why_no_device(int) { return kWithoutCuda.error; }
std::string describe_device(int) { return kWithoutCuda.error; }
Status use_device(int) { return kWithoutCuda; }
Status current_device(int&) { return kWithoutCuda; }
bool has_context(int) { return false; }
Status wait(Stream) { return kWithoutCuda; }
Status copy(void*, const void*, std::size_t, Stream) { return kWithoutCuda; }
Status fill(void*, int, std::size_t, Stream) { return kWithoutCuda; }
Status add_callback(Stream, void (*)(void*), void*) { return kWithoutCuda; }
Status device_memory(std::size_t&, std::size_t&) { return kWithoutCuda; }

Status DeviceMemory::allocate(std::size_t) { return kWithoutCuda; }
Status PinnedMemory::allocate(std::size_t) { return kWithoutCuda; }
Status PinnedRegistration::add(void*, std::size_t) { return kWithoutCuda; }

Status export_memory(const DeviceMemory&, MemoryHandle&) { return kWithoutCuda; }
Status IpcMemory::open(const MemoryHandle&) { return kWithoutCuda; }

UniqueStream::~UniqueStream() = default;
Status UniqueStream::create() { return kWithoutCuda; }

Event::~Event() = default;
Status Event::create() { return kWithoutCuda; }
Status Event::record(Stream) { return kWithoutCuda; }
Status Event::make_wait(Stream) const { return kWithoutCuda; }
Status Event::wait() const { return kWithoutCuda; }
Status Event::query(bool&) const { return kWithoutCuda; }
Status Event::milliseconds_since(const Event&, float&) const { return kWithoutCuda; }

template <class Operation>
Status launch(const Operation&, const typename Operation::Tensor&, std::uint64_t*, Stream) {
  return kWithoutCuda;
}

#define DT_LAUNCH(...) \
  template Status launch(const __VA_ARGS__&, const __VA_ARGS__::Tensor&, std::uint64_t*, Stream);

DT_SUMS(DT_LAUNCH)
DT_STEPS(DT_LAUNCH)
DT_CODECS(DT_LAUNCH)

Status multiply(const float*, const float*, float*, int, Stream) { return kWithoutCuda; }

}  // namespace dt::kv::cuda
