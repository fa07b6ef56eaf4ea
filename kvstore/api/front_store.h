/// A store in front of another one: forwards every call that a subclass does not change. A subclass
/// may leave work for the end of an operation; the caller's wait for the operation does it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/store.h"

namespace dt::kv {

class FrontStore : public Store {
 public:
  explicit FrontStore(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] const std::string& type() const override { return inner_->type(); }
  [[nodiscard]] View view() const override { return inner_->view(); }
  [[nodiscard]] WorkerId worker() const override { return inner_->worker(); }
  [[nodiscard]] bool is_newcomer() const override { return inner_->is_newcomer(); }
  [[nodiscard]] bool is_lead() const override { return inner_->is_lead(); }

  Status wait(Handle handle, double timeout_s) override;
  Status wait_all(double timeout_s) override;
  Status wait_in_stream(Handle handle, double timeout_s) override {
    return endings_.contains(handle) ? wait(handle, timeout_s)
                                     : inner_->wait_in_stream(handle, timeout_s);
  }

  StoreResult<void*> allocate(std::size_t bytes) override;
  [[nodiscard]] std::shared_ptr<const void> owner_of(const void* memory) const override {
    return inner_->owner_of(memory);
  }
  Status release(void* memory) override;
  Status set_optimizer(const std::string& spec) override { return inner_->set_optimizer(spec); }
  StoreResult<std::string> optimizer() override { return inner_->optimizer(); }
  Status pull_state(const Keys& keys, State which, const Arrays& out,
                    std::span<std::uint64_t> updates) override {
    return inner_->pull_state(keys, which, out, updates);
  }
  Status init_state(const Keys& keys, State which, const Arrays& values,
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
  Status report(const std::string& name, const Figure& value) override {
    return inner_->report(name, value);
  }

 protected:
  /// What remains to do at the end of an operation.
  struct Ending {
    std::function<Status(bool is_good)> end;  ///< `is_good`: the operation succeeded.
    Arrays written;                           ///< The caller's arrays that it writes.
  };

  [[nodiscard]] Store& inner() { return *inner_; }
  [[nodiscard]] const Store& inner() const { return *inner_; }
  void at_end_of(Handle handle, Ending ending) { endings_.emplace(handle, std::move(ending)); }

 private:
  std::unique_ptr<Store> inner_;
  std::map<Handle, Ending> endings_;
  std::map<const void*, std::size_t> allocated_;  ///< Bytes, by their begin.
};

}  // namespace dt::kv
