/// Calls in which a key is given several times: its arrays on the devices of one process. Pushed
/// arrays are summed first and are one contribution; a pulled value is written to all of them.
/// Other calls are forwarded unchanged.
///
/// Keys with arrays on several GPUs are forwarded as they are to a store that takes them, and the
/// call returns at once (Store::takes_groups). All others wait for the arrays' streams: sums, and
/// values for several arrays, lie in one memory of the store per call, which a server of this host
/// reads and writes in place. The memory is reused after the caller has waited for the operation.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvstore/store.h"
#include "kvstore/worker/device/arrays.h"
#include "kvstore/worker/device/group.h"

namespace dt::kv {

class GroupStore final : public Store {
 public:
  explicit GroupStore(std::unique_ptr<Store> inner, cuda::LocalGroup::Options group = {})
      : inner_(std::move(inner)), group_(std::move(group)) {}

  [[nodiscard]] const std::string& type() const override { return inner_->type(); }
  [[nodiscard]] View view() const override { return inner_->view(); }
  [[nodiscard]] WorkerId worker() const override { return inner_->worker(); }
  [[nodiscard]] bool is_newcomer() const override { return inner_->is_newcomer(); }
  [[nodiscard]] bool is_lead() const override { return inner_->is_lead(); }

  Status init(const std::vector<std::string>& keys, const std::vector<Array>& values,
              std::uint8_t flags) override;
  StoreResult<Handle> begin(const std::vector<std::string>& keys, const std::vector<Array>* values,
                            const std::vector<Array>* out, const PushOptions& options) override;
  Status wait(Handle handle, double timeout_s) override;
  Status wait_all(double timeout_s) override;
  Status wait_in_stream(Handle handle, double timeout_s) override {
    return open_.contains(handle) ? wait(handle, timeout_s)
                                  : inner_->wait_in_stream(handle, timeout_s);
  }

  StoreResult<void*> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  [[nodiscard]] std::shared_ptr<const void> owner_of(const void* memory) const override {
    return inner_->owner_of(memory);
  }
  Status release(void* memory) override { return inner_->release(memory); }
  Status set_optimizer(const std::string& spec) override { return inner_->set_optimizer(spec); }
  StoreResult<std::string> optimizer() override { return inner_->optimizer(); }
  Status pull_state(const std::vector<std::string>& keys, State which,
                    const std::vector<Array>& out, std::span<std::uint64_t> updates) override {
    return inner_->pull_state(keys, which, out, updates);
  }
  Status init_state(const std::vector<std::string>& keys, State which,
                    const std::vector<Array>& values,
                    std::span<const std::uint64_t> updates) override {
    return inner_->init_state(keys, which, values, updates);
  }
  Status set_gradient_compression(const std::string& spec) override {
    return inner_->set_gradient_compression(spec);
  }
  Status barrier() override { return inner_->barrier(); }
  Status finish_steps() override { return inner_->finish_steps(); }
  Status finish_epoch() override { return inner_->finish_epoch(); }
  StoreResult<View> epoch_boundary(Epoch epoch) override { return inner_->epoch_boundary(epoch); }
  Status progress(Epoch epoch, std::uint64_t step) override {
    return inner_->progress(epoch, step);
  }
  Status report(const std::string& name, double value) override {
    return inner_->report(name, value);
  }

 private:
  /// A call's list with each key once, and the positions of its arrays in the caller's list.
  struct Groups {
    std::vector<std::string> keys;
    std::vector<std::size_t> begins;  ///< One more than keys: the last is the list's end.

    [[nodiscard]] std::size_t count(std::size_t k) const { return begins[k + 1] - begins[k]; }
    [[nodiscard]] std::span<const Array> of(std::size_t k, const std::vector<Array>& arrays) const {
      return std::span(arrays).subspan(begins[k], count(k));
    }
  };
  /// The store's memory for one call.
  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t used = 0;
  };
  /// A value in host memory that the operation writes, and the arrays to copy it to.
  struct Spread {
    Array value;
    std::vector<Array> arrays;
  };
  /// What remains to do when an operation is done.
  struct Open {
    Block block;
    std::vector<Spread> spreads;
  };

  /// Whether the inner store sums and writes these arrays itself.
  [[nodiscard]] bool is_for_inner(std::span<const Array> of_key) const {
    return inner_->takes_groups() && DeviceGroup::takes(of_key);
  }
  [[nodiscard]] static bool has_repeats(const std::vector<std::string>& keys);
  [[nodiscard]] static Groups group(const std::vector<std::string>& keys);
  /// "" or why the arrays of a key cannot be summed or written together.
  [[nodiscard]] static std::string mismatch(const Groups& groups, const std::vector<Array>& arrays);
  /// Memory for a call; a list may be null.
  StoreResult<Block> take(const Groups& groups, const std::vector<Array>* pushed,
                          const std::vector<Array>* pulled);
  /// The array to push for each key: its array, or the sum of its arrays.
  StoreResult<std::vector<Array>> add_up(const Groups& groups, const std::vector<Array>& arrays,
                                         Block& block);
  /// The array into which each key's value is pulled first.
  std::vector<Array> values_of(const Groups& groups, const std::vector<Array>& arrays,
                               Open& open) const;
  Status add_up_on_host(std::span<const Array> arrays, const Array& sum);
  Status spread_from_host(const Spread& spread);
  /// Copies the values to their arrays if the operation succeeded, and frees its memory.
  Status close(Open& open, bool is_good);

  std::unique_ptr<Store> inner_;
  std::map<Handle, Open> open_;
  std::vector<Block> free_;  ///< The smallest first; of equal ones the last freed.
  KnownDevices devices_;
  DeviceGroup group_;
};

}  // namespace dt::kv
