/// Gradients out, new weights in, while the network computes.
///
/// Parameters lie one after the other in one array; their gradients, and the new weights that come
/// back, in memory of the kvstore's, which a server of this host reads and writes in place.
/// Neighbours form buckets, the last layers' first: backward finishes these first, and a bucket
/// leaves in one call of the kvstore as soon as backward has its last gradient. The next forward
/// pass wants the first layers first, so these have the highest priority, and it waits for a bucket
/// only when it comes to a part in it (Network::use).
///
///     forward --use(part)--> its buckets taken over          one step, seen from the caller's
///     thread; settle                  the rest                       between the lines the kvstore
///     works begin; backward --> buckets pushed; push_rest
///
/// A process with several devices has a replica of the network on each. A bucket leaves when all of
/// them have its last gradient: the kvstore adds theirs up and brings the new weights to each.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "kvstore/kvstore.h"
#include "trainer/keys.h"
#include "trainer/models/network.h"

namespace dt::train {

/// A network's parameters become views of one array, on their device.
struct FlatParameters {
  torch::Tensor values;
  KeyTable parameters;  ///< Views of `values`, in the order of their registration.

  explicit FlatParameters(Network& network);
};

/// Floats of the kvstore's.
class StoreArray {
 public:
  /// Zeroed. `kv` outlives this.
  StoreArray(dtkv::KVStore& kv, std::int64_t size);
  /// No operation on it is under way.
  ~StoreArray();
  StoreArray(const StoreArray&) = delete;
  StoreArray& operator=(const StoreArray&) = delete;

  [[nodiscard]] float* data() const { return data_; }

 private:
  dtkv::KVStore& kv_;
  float* data_;
};

/// A network and its parameters, one of several that are alike.
struct Replica {
  std::shared_ptr<Network> network;
  FlatParameters flat;

  explicit Replica(std::shared_ptr<Network> net) : network(std::move(net)), flat(*network) {}
};

/// The networks' .grad() are views of memory that is here, the kvstore's for a network on the CPU,
/// while this lives, and undefined after.
///
/// The thread that calls backward calls everything here. libtorch runs the hooks of a network on a
/// GPU on a thread of its own for each; meanwhile the caller's does not use the store.
class GradientExchange {
 public:
  /// All outlive this. Without `overlap` nothing leaves before push_rest(), and settle() is for the
  /// caller to do at once.
  GradientExchange(dtkv::KVStore& kv, std::vector<Replica>& replicas, bool overlap);
  /// Waits for what is on its way: after an exception in backward the kvstore still reads and
  /// writes the arrays.
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  /// From here to push_rest() gradients leave as backward has them. Everything was settled.
  void begin(const dtkv::Push& options);
  /// Pushes what backward did not touch: everybody takes part in every round.
  [[nodiscard]] Result<void> push_rest();
  /// Waits until all new weights are there and taken over, and the gradients are zero again.
  [[nodiscard]] Result<void> settle();
  /// The servers were lost, and with them what is on its way: as if no step had been made.
  void forget();

 private:
  struct Bucket {
    std::size_t first = 0;  ///< Of the parameters.
    std::size_t count = 0;
    std::int64_t begin = 0;  ///< In the flat arrays.
    std::int64_t end = 0;
    std::size_t with_gradient = 0;  ///< How many parameters, of all replicas, backward reaches.
    std::size_t left = 0;           ///< How many of those it has not reached.
    std::vector<dtkv::Entry> gradients{};  ///< Each parameter's of all replicas.
    std::vector<dtkv::Entry> incoming{};
    dtkv_handle handle = 0;
    bool is_pushed = false;
    bool is_late = false;  ///< forward ended before anybody waited for it.
  };

  /// What a replica's gradients are written to and its new weights arrive in, laid out as its
  /// values; backward may still need the old weights.
  struct Side {
    std::unique_ptr<StoreArray> gradients_at;  ///< Of a replica on the CPU.
    std::unique_ptr<StoreArray> incoming_at;
    torch::Tensor gradients;
    torch::Tensor incoming;
  };

  Side make_side(FlatParameters& flat);
  void make_buckets();
  void add_entries(Bucket& bucket, std::size_t parameter);
  void hook(Replica& replica, std::size_t parameter);
  void on_gradient(std::size_t parameter);
  void on_use(const FlatParameters& flat, const torch::nn::Module& part);
  void push(std::size_t bucket);
  void take_over(std::size_t bucket);
  /// Does `call` unless there was an error, and remembers its own.
  template <class Call>
  void attempt(Call call) {
    if (trouble_) trouble_ = checked("exchange gradients", call);
  }

  dtkv::KVStore& kv_;
  std::vector<Replica>& replicas_;
  bool overlap_;
  std::vector<Side> sides_;                                           ///< By replica.
  std::vector<Bucket> buckets_;                                       ///< The last layers' first.
  std::vector<std::size_t> bucket_of_;                                ///< By parameter.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;  ///< Own the hooks.
  std::mutex mutex_;  ///< Held by hooks, for all below.
  dtkv::Push options_;
  bool is_open_ = false;       ///< Between begin() and push_rest().
  std::size_t under_way_ = 0;  ///< Buckets pushed and not taken over.
  Result<void> trouble_;       ///< The first error; nothing is pushed after it.
};

}  // namespace dt::train
