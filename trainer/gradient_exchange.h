/// Gradients out, new weights in, while the network computes.
///
/// Parameters lie one after the other in one array; their gradients and the new weights lie in
/// memory of the kvstore, which a server of this host reads and writes in place. Neighbours form
/// buckets, the last layers' first, since backward finishes these first. A bucket is sent in one
/// call of the kvstore as soon as backward has its last gradient. The next forward pass needs the
/// first layers first, so these have the highest priority, and it waits for a bucket only when it
/// comes to a part in it (Network::use).
///
///     forward --use(part)--> its buckets taken over          one step, seen from the caller's
///     thread; settle                  the rest                       between the lines the kvstore
///     works begin; backward --> buckets pushed; push_rest
///
/// A process with several devices has a replica of the network on each. A bucket is sent when all
/// replicas have its last gradient: the kvstore sums their gradients and writes the new weights to
/// each.
#pragma once

#include <functional>
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

/// Floats in the kvstore's memory; freed only while no operation on them is under way.
using StoreArray = std::unique_ptr<float, std::function<void(float*)>>;

/// A network and its parameters; all replicas are equal.
struct Replica {
  std::shared_ptr<Network> network;
  FlatParameters flat;

  explicit Replica(std::shared_ptr<Network> net) : network(std::move(net)), flat(*network) {}
};

/// While this lives, the networks' .grad() are views of its memory, which for a network on the CPU
/// is the kvstore's; afterwards they are undefined.
///
/// The thread that calls backward calls everything here. libtorch runs the hooks of networks on
/// GPUs on one thread per GPU; meanwhile the caller's thread does not use the store.
class GradientExchange {
 public:
  /// All arguments outlive this. Without `overlap` nothing is sent before push_rest(), and the
  /// caller calls settle() at once.
  GradientExchange(dtkv::KVStore& kv, std::vector<Replica>& replicas, bool overlap);
  /// Waits for operations under way: after an exception in backward the kvstore still reads and
  /// writes the arrays.
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  /// From here to push_rest() gradients are sent as backward computes them. Call settle() before.
  void begin(const dtkv::Push& options);
  /// Pushes the buckets that backward did not complete: every worker takes part in every round.
  [[nodiscard]] Result<void> push_rest();
  /// Waits until all new weights have arrived, copies them to the networks and zeroes the
  /// gradients.
  [[nodiscard]] Result<void> settle();
  /// The servers were lost: drops the operations under way, as if the step had not been made.
  void forget();

 private:
  struct Bucket {
    std::size_t first = 0;  ///< Index of the first parameter.
    std::size_t count = 0;
    std::int64_t begin = 0;  ///< Index in the flat arrays.
    std::int64_t end = 0;
    std::size_t with_gradient = 0;  ///< Number of parameters, of all replicas, with a gradient.
    std::size_t left = 0;           ///< Number of those whose gradient is missing.
    std::vector<dtkv::Entry> gradients{};  ///< For each parameter, those of all replicas.
    std::vector<dtkv::Entry> incoming{};
    dtkv_handle handle = 0;
    bool is_pushed = false;
    bool is_late = false;  ///< No use() in forward waited for it; settle() did.
  };

  /// A replica's memory for gradients and for incoming weights, laid out like its values. Weights
  /// do not arrive in the values themselves, since backward may still need the old ones.
  struct Side {
    StoreArray gradients_at;  ///< Only for a replica on the CPU.
    StoreArray incoming_at;
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
  /// Makes `call` unless there was an error, and stores its error.
  template <class Call>
  void attempt(Call call) {
    if (trouble_) trouble_ = checked("exchange gradients", call);
  }

  dtkv::KVStore& kv_;
  std::vector<Replica>& replicas_;
  std::vector<Side> sides_;                                           ///< By replica.
  std::vector<Bucket> buckets_;                                       ///< The last layers' first.
  std::vector<std::size_t> bucket_of_;                                ///< By parameter.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;  ///< Own the hooks.
  std::mutex mutex_;  ///< Held by hooks; protects all members below.
  dtkv::Push options_;
  bool is_open_ = false;       ///< Between begin() and push_rest().
  std::size_t under_way_ = 0;  ///< Buckets pushed whose weights were not copied yet.
  Result<void> trouble_;       ///< The first error; nothing is pushed after it.
};

}  // namespace dt::train
