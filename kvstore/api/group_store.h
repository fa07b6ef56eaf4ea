/// Calls in which a key is given several times: its arrays on the devices of one process. Pushed
/// arrays are summed first and are one contribution; a pulled value is written to all of them.
/// Other calls are forwarded unchanged.
///
/// Keys with arrays on several GPUs are forwarded as they are to a store that takes them, and the
/// call returns at once (Store::takes_groups). All others wait for the arrays' streams: sums, and
/// values for several arrays, lie in one memory of the store per call, which a server of this host
/// reads and writes in place. The memory is reused after the caller has waited for the operation.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/api/blocks.h"
#include "kvstore/api/front_store.h"
#include "kvstore/worker/device/arrays.h"
#include "kvstore/worker/device/group.h"

namespace dt::kv {

class GroupStore final : public FrontStore {
 public:
  explicit GroupStore(std::unique_ptr<Store> inner, cuda::LocalGroup::Options group = {})
      : FrontStore(std::move(inner)), group_(std::move(group)) {}

  Status init(const Keys& keys, const Arrays& values, std::uint8_t flags) override;
  StoreResult<Handle> begin(const Keys& keys, const Arrays* values, const Arrays* out,
                            const PushOptions& options) override;

 private:
  /// A call's list with each key once, and the positions of its arrays in the caller's list.
  struct Groups {
    Keys keys;
    std::vector<std::size_t> begins;  ///< One more than keys: the last is the list's end.

    [[nodiscard]] std::size_t count(std::size_t k) const { return begins[k + 1] - begins[k]; }
    [[nodiscard]] std::span<const Array> of(std::size_t k, const Arrays& arrays) const {
      return std::span(arrays).subspan(begins[k], count(k));
    }
  };
  /// A value in host memory that the operation writes, and the arrays to copy it to.
  struct Spread {
    Array value;
    Arrays arrays;
  };
  /// What remains to do when an operation is done.
  struct Open {
    Blocks::Block block;
    std::vector<Spread> spreads;
  };

  /// Whether the inner store sums and writes these arrays itself.
  [[nodiscard]] bool is_for_inner(std::span<const Array> of_key) const {
    return inner().takes_groups() && DeviceGroup::takes(of_key);
  }
  [[nodiscard]] static Groups group(const Keys& keys);
  /// "" or why the arrays of a key cannot be summed or written together.
  [[nodiscard]] static std::string mismatch(const Groups& groups, const Arrays& arrays);
  /// Memory for a call; a list may be null.
  StoreResult<Blocks::Block> take(const Groups& groups, const Arrays* pushed, const Arrays* pulled);
  /// The array to push for each key: its array, or the sum of its arrays.
  StoreResult<Arrays> add_up(const Groups& groups, const Arrays& arrays, Blocks::Block& block);
  /// The array into which each key's value is pulled first.
  Arrays values_of(const Groups& groups, const Arrays& arrays, Open& open) const;
  Status add_up_on_host(std::span<const Array> arrays, const Array& sum);
  Status spread_from_host(const Spread& spread);
  /// Copies the values to their arrays if the operation succeeded, and frees its memory.
  Status close(const Open& open, bool is_good);

  Blocks blocks_;
  KnownDevices devices_;
  DeviceGroup group_;
};

}  // namespace dt::kv
