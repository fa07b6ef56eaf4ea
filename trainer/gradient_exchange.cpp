#include "trainer/gradient_exchange.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>

namespace dt::train {
namespace {

/// Each parameter begins at a multiple of this many floats in the flat arrays: one cache line.
constexpr std::int64_t kAlign = 16;
/// A bucket is full when it has this many bytes: small enough that sending the last one, which does
/// not overlap with computation, is short; large enough that a hundred small tensors are a few
/// calls.
constexpr std::int64_t kBucketBytes = 256 << 10;

constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

std::int64_t padded(std::int64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

}  // namespace

FlatParameters::FlatParameters(Network& network) {
  const torch::NoGradGuard no_grad;
  std::int64_t size = 0;
  auto where = torch::TensorOptions();
  for (const auto& p : network.parameters()) {
    size += padded(p.numel());
    where = where.device(p.device());
  }
  values = torch::zeros({size}, where);
  std::int64_t at = 0;
  for (auto& item : network.named_parameters()) {
    auto& parameter = item.value();
    const auto view = values.narrow(0, at, parameter.numel()).view(parameter.sizes());
    view.copy_(parameter);
    parameter.set_data(view);
    parameters.add(item.key(), parameter);
    at += padded(parameter.numel());
  }
}

GradientExchange::GradientExchange(dtkv::KVStore& kv, std::vector<Replica>& replicas, bool overlap)
    : kv_(kv), replicas_(replicas) {
  for (auto& replica : replicas_) sides_.push_back(make_side(replica.flat));
  make_buckets();
  if (!overlap) return;
  for (auto& replica : replicas_) {
    for (std::size_t i = 0; i < bucket_of_.size(); ++i) hook(replica, i);
    replica.network->on_use(
        [this, &replica](const torch::nn::Module& part) { on_use(replica.flat, part); });
  }
}

GradientExchange::Side GradientExchange::make_side(FlatParameters& flat) {
  const std::int64_t size = flat.values.numel();
  Side side;
  if (flat.values.is_cpu()) {
    const auto allocate = [&kv = kv_, size] {
      const auto free = [&kv](float* data) {
        (void)checked("free memory", [&] { kv.free(data); });
      };
      return StoreArray(kv.allocate<float>(static_cast<std::size_t>(size)), free);
    };
    side.gradients_at = allocate();
    side.incoming_at = allocate();
    side.gradients = torch::from_blob(side.gradients_at.get(), {size});
    side.incoming = torch::from_blob(side.incoming_at.get(), {size});
  } else {
    side.gradients = torch::zeros_like(flat.values);
    side.incoming = torch::zeros_like(flat.values);
  }
  for (auto& parameter : flat.parameters.tensors) {
    const std::int64_t at = parameter.data_ptr<float>() - flat.values.data_ptr<float>();
    parameter.mutable_grad() =
        side.gradients.narrow(0, at, parameter.numel()).view(parameter.sizes());
  }
  return side;
}

GradientExchange::~GradientExchange() {
  for (auto& replica : replicas_) replica.network->on_use({});
  if (under_way_ > 0) (void)checked("end", [this] { kv_.wait_all(); });
  for (auto& replica : replicas_)
    for (auto& parameter : replica.flat.parameters.tensors)
      parameter.mutable_grad() = torch::Tensor();
}

void GradientExchange::make_buckets() {
  const auto& flat = replicas_.front().flat;
  bucket_of_.resize(flat.parameters.tensors.size());
  const auto* from = flat.values.data_ptr<float>();
  std::int64_t end = flat.values.numel();
  for (std::size_t i = bucket_of_.size(); i-- > 0;) {
    const bool is_full = buckets_.empty() || (buckets_.back().end - end) * kFloat >= kBucketBytes;
    if (is_full) buckets_.push_back({.end = end});
    auto& bucket = buckets_.back();
    bucket.first = i;
    ++bucket.count;
    bucket.begin = end = flat.parameters.tensors[i].data_ptr<float>() - from;
    bucket_of_[i] = buckets_.size() - 1;
  }
  for (auto& bucket : buckets_)
    for (std::size_t i = bucket.first; i < bucket.first + bucket.count; ++i) add_entries(bucket, i);
}

void GradientExchange::add_entries(Bucket& bucket, std::size_t parameter) {
  for (std::size_t r = 0; r < replicas_.size(); ++r) {
    const auto& flat = replicas_[r].flat;
    const auto& name = flat.parameters.names[parameter];
    const auto& tensor = flat.parameters.tensors[parameter];
    const std::int64_t at = tensor.data_ptr<float>() - flat.values.data_ptr<float>();
    bucket.gradients.emplace_back(name,
                                  array_of(sides_[r].gradients.narrow(0, at, tensor.numel())));
    bucket.incoming.emplace_back(name, array_of(sides_[r].incoming.narrow(0, at, tensor.numel())));
  }
}

void GradientExchange::hook(Replica& replica, std::size_t parameter) {
  auto& tensor = replica.flat.parameters.tensors[parameter];
  auto node = torch::autograd::impl::grad_accumulator(tensor);
  if (!node) return;  // frozen: requires no gradient
  ++buckets_[bucket_of_[parameter]].with_gradient;
  using Variables = std::vector<torch::Tensor>;
  node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [this, parameter](const Variables& outputs, const Variables&) {
        on_gradient(parameter);
        return outputs;
      }));
  accumulators_.push_back(std::move(node));
}

void GradientExchange::begin(const dtkv::Push& options) {
  DT_CHECK(under_way_ == 0, "a step's weights are settled before the next step's gradients leave");
  options_ = options;
  for (auto& bucket : buckets_) {
    bucket.left = bucket.with_gradient;
    bucket.is_pushed = false;
  }
  is_open_ = true;
}

void GradientExchange::on_gradient(std::size_t parameter) {
  const std::lock_guard lock(mutex_);
  auto& bucket = buckets_[bucket_of_[parameter]];
  if (!is_open_ || bucket.is_pushed) return;
  if (bucket.is_late && trouble_ && replicas_.front().network->says_use())
    trouble_ = fail(ErrorKind::kInvalid,
                    "the network's forward reads {} before it says use() of that part",
                    replicas_.front().flat.parameters.names[parameter]);
  if (--bucket.left == 0) push(bucket_of_[parameter]);
}

void GradientExchange::push(std::size_t at) {
  auto& bucket = buckets_[at];
  if (bucket.is_pushed || !trouble_) return;
  bucket.is_pushed = true;
  dtkv::Push options = options_;
  options.priority = static_cast<int>(at);
  attempt([&] { kv_.pushpull(bucket.gradients, bucket.incoming, options, &bucket.handle); });
  if (trouble_) ++under_way_;
}

Result<void> GradientExchange::push_rest() {
  for (std::size_t at = buckets_.size(); at-- > 0;) push(at);
  is_open_ = false;
  return trouble_;
}

void GradientExchange::on_use(const FlatParameters& flat, const torch::nn::Module& part) {
  if (under_way_ == 0) return;
  const auto* from = flat.values.data_ptr<float>();
  for (const auto& parameter : part.parameters()) {
    const std::int64_t offset = parameter.data_ptr<float>() - from;
    const auto holds = [offset](const Bucket& b) { return b.begin <= offset && offset < b.end; };
    const auto found = std::ranges::find_if(buckets_, holds);
    if (found != buckets_.end()) take_over(static_cast<std::size_t>(found - buckets_.begin()));
  }
}

void GradientExchange::take_over(std::size_t at) {
  auto& bucket = buckets_[at];
  if (bucket.handle == 0 || !trouble_) return;
  attempt([&] { kv_.wait(bucket.handle); });
  if (!trouble_) return;
  bucket.handle = 0;
  --under_way_;
  const std::int64_t size = bucket.end - bucket.begin;
  for (std::size_t r = 0; r < replicas_.size(); ++r) {
    auto& side = sides_[r];
    auto& values = replicas_[r].flat.values;
    if (side.incoming_at) {
      const auto bytes = static_cast<std::size_t>(size * kFloat);
      std::memcpy(values.data_ptr<float>() + bucket.begin, side.incoming_at.get() + bucket.begin,
                  bytes);
      std::memset(side.gradients_at.get() + bucket.begin, 0, bytes);
      continue;
    }
    // forward may call use() while autograd records: do not record these copies.
    const torch::NoGradGuard no_grad;
    values.data().narrow(0, bucket.begin, size).copy_(side.incoming.narrow(0, bucket.begin, size));
    side.gradients.narrow(0, bucket.begin, size).zero_();
  }
}

Result<void> GradientExchange::settle() {
  for (std::size_t at = buckets_.size(); at-- > 0;) {
    buckets_[at].is_late = buckets_[at].handle != 0;
    take_over(at);
  }
  return trouble_;
}

void GradientExchange::forget() {
  if (under_way_ > 0) (void)checked("forget", [this] { kv_.wait_all(); });  // all end at once
  under_way_ = 0;
  for (auto& bucket : buckets_) bucket.handle = 0;
  for (auto& side : sides_) side.gradients.zero_();
  is_open_ = false;
  trouble_ = {};
}

}  // namespace dt::train
