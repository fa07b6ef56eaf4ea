// dtbench-gloo: one rank of Gloo's ring all-reduce over TCP on loopback; run by `dtbench kv --peer
// gloo`.
//   dtbench-gloo CONTROL RANK FOLDER BUCKET    the ranks meet in FOLDER; BUCKET 0: per tensor
//
// With buckets, as DistributedDataParallel uses Gloo: tensors are copied together up to 25 MB, and
// back.

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstring>
#include <exception>
#include <memory>

#include "test/bench/kv/peer_main.h"
#include "test/bench/kv/worker.h"

namespace {

using namespace dt;
using namespace dt::bench;

class GlooExchange final : public Exchange {
 public:
  GlooExchange(std::shared_ptr<gloo::Context> context, std::span<const std::uint64_t> elements,
               std::size_t bucket_bytes)
      : context_(std::move(context)) {
    std::size_t all = 0;
    std::size_t largest = 0;
    for (const std::uint64_t count : elements) {
      const bool fits =
          !buckets_.empty() && (buckets_.back().elements + count) * sizeof(float) <= bucket_bytes;
      if (!fits) buckets_.push_back({all, 0, 0});
      buckets_.back().elements += count;
      ++buckets_.back().tensors;
      largest = std::max(largest, buckets_.back().elements);
      all += count;
    }
    values_ = Buffer(all);
    if (bucket_bytes > 0) together_ = Buffer(largest);
  }

  std::span<float> gradient() override { return values_.values(); }
  std::span<const float> result() override { return values_.values(); }

  void run() override {
    for (const auto& bucket : buckets_) {
      float* values = values_.values().data() + bucket.first;
      float* reduced = bucket.tensors > 1 ? together_.values().data() : values;
      const std::size_t bytes = bucket.elements * sizeof(float);
      if (reduced != values) std::memcpy(reduced, values, bytes);
      gloo::AllreduceOptions options(context_);
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      options.setOutput(reduced, bucket.elements);
      void (*sum)(void*, const void*, const void*, std::size_t) = &gloo::sum<float>;
      options.setReduceFunction(sum);
      gloo::allreduce(options);
      if (reduced != values) std::memcpy(values, reduced, bytes);
    }
  }

 private:
  struct Bucket {
    std::size_t first;
    std::size_t elements;
    std::size_t tensors;
  };
  std::shared_ptr<gloo::Context> context_;
  std::vector<Bucket> buckets_;
  Buffer values_;
  Buffer together_;
};

void work(const PeerArguments& arguments) {
  Control control(arguments.control);
  gloo::transport::tcp::attr loopback;
  loopback.hostname = "127.0.0.1";
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(loopback);
  const auto ranks = static_cast<int>(control.workers());
  auto context =
      std::make_shared<gloo::rendezvous::Context>(static_cast<int>(arguments.rank), ranks);
  gloo::rendezvous::FileStore store(arguments.folder);
  context->connectFullMesh(store, device);
  GlooExchange exchange(context, control.elements(), arguments.bucket_bytes);
  take_part(control, arguments.rank, exchange);
}

}  // namespace

int main(int argc, char** argv) { return peer_main(argc, argv, "dtbench-gloo", work); }
