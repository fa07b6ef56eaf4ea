#include "kvstore/api/front_store.h"

#include <algorithm>
#include <functional>

namespace dt::kv {

Status FrontStore::wait(Handle handle, double timeout_s) {
  auto done = inner_->wait(handle, timeout_s);
  const auto found = endings_.find(handle);
  if (found == endings_.end()) return done;
  if (!done && done.error().code == Code::kTimeout) return done;  // still under way
  auto ended = found->second.end(done.has_value());
  endings_.erase(found);
  return done ? ended : done;
}

Status FrontStore::wait_all(double timeout_s) {
  // One by one: the values of operations that succeeded are delivered even if another one failed.
  Status all;
  while (!endings_.empty() && (all || all.error().code != Code::kTimeout)) {
    auto done = wait(endings_.begin()->first, timeout_s);
    if (all) all = std::move(done);
  }
  auto rest = inner_->wait_all(timeout_s);
  return all ? rest : all;
}

StoreResult<void*> FrontStore::allocate(std::size_t bytes) {
  auto memory = inner_->allocate(bytes);
  if (memory) allocated_[*memory] = bytes;
  return memory;
}

Status FrontStore::release(void* memory) {
  const auto known = allocated_.find(memory);
  if (known != allocated_.end()) {
    const auto* begin = static_cast<const std::byte*>(memory);
    const auto is_there = [&](const Array& array) {
      return std::less_equal<>()(begin, static_cast<const std::byte*>(array.data)) &&
             std::less<>()(static_cast<const std::byte*>(array.data), begin + known->second);
    };
    for (const auto& [handle, ending] : endings_)
      if (std::any_of(ending.written.begin(), ending.written.end(), is_there))
        return store_error(Code::kInvalid,
                           fmt::format("operation {} is under way in this memory: wait for it "
                                       "before the memory is freed",
                                       handle));
  }
  auto released = inner_->release(memory);
  if (released && known != allocated_.end()) allocated_.erase(known);
  return released;
}

}  // namespace dt::kv
