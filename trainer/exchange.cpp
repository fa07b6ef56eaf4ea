#include "trainer/exchange.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>

namespace dt {
namespace {

/// Each parameter begins at a multiple of so many floats in the flat arrays: one cache line.
constexpr int64_t kAlign = 16;
/// A bucket is full when it has so many bytes: small enough that the last one, for which nobody
/// computes any more, is short; large enough that a hundred small tensors are a few calls.
constexpr int64_t kBucketBytes = 256 << 10;

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

int64_t padded(int64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

}  // namespace

FlatParameters::FlatParameters(Network& network) {
  const torch::NoGradGuard no_grad;
  int64_t size = 0;
  for (const auto& p : network.parameters()) size += padded(p.numel());
  values = torch::zeros({size});
  int64_t at = 0;
  for (auto& item : network.named_parameters()) {
    auto& parameter = item.value();
    const auto view = values.narrow(0, at, parameter.numel()).view(parameter.sizes());
    view.copy_(parameter);
    parameter.set_data(view);
    parameters.add(item.key(), parameter);
    at += padded(parameter.numel());
  }
}

StoreArray::StoreArray(dtkv::KVStore& kv, int64_t size)
    : kv_(kv), data_(kv.allocate<float>(static_cast<size_t>(size))) {}

StoreArray::~StoreArray() { (void)dtkv_free(kv_.get(), data_); }

Exchange::Exchange(dtkv::KVStore& kv, Network& network, FlatParameters& flat, bool overlap)
    : kv_(kv),
      network_(network),
      flat_(flat),
      overlap_(overlap),
      gradients_at_(kv, flat.values.numel()),
      incoming_(kv, flat.values.numel()),
      keys_(flat.parameters.keys()),
      gradients_(flat.parameters.arrays()),
      out_(gradients_) {
  const auto* from = flat.values.data_ptr<float>();
  for (size_t i = 0; i < keys_.size(); ++i) {
    const auto at = static_cast<float*>(gradients_[i].data) - from;
    gradients_[i].data = gradients_at_.data() + at;
    out_[i].data = incoming_.data() + at;
    auto& parameter = flat.parameters.tensors[i];
    parameter.mutable_grad() = torch::from_blob(gradients_at_.data() + at, parameter.sizes());
  }
  make_buckets();
  if (!overlap) return;
  for (size_t i = 0; i < keys_.size(); ++i) hook(i);
  network.on_use([this](const torch::nn::Module& part) { on_use(part); });
}

Exchange::~Exchange() {
  network_.on_use({});
  if (under_way_ > 0) dtkv_wait_all(kv_.get(), 0);
  for (auto& parameter : flat_.parameters.tensors) parameter.mutable_grad() = torch::Tensor();
}

void Exchange::make_buckets() {
  bucket_of_.resize(keys_.size());
  const auto* from = flat_.values.data_ptr<float>();
  int64_t end = flat_.values.numel();
  for (size_t i = keys_.size(); i-- > 0;) {
    const bool is_full = buckets_.empty() || (buckets_.back().end - end) * kFloat >= kBucketBytes;
    if (is_full) buckets_.push_back({.end = end});
    auto& bucket = buckets_.back();
    bucket.first = i;
    ++bucket.count;
    bucket.begin = end = flat_.parameters.tensors[i].data_ptr<float>() - from;
    bucket_of_[i] = buckets_.size() - 1;
  }
}

void Exchange::hook(size_t parameter) {
  auto node = torch::autograd::impl::grad_accumulator(flat_.parameters.tensors[parameter]);
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

void Exchange::begin(const dtkv_push_options& options) {
  DT_CHECK(under_way_ == 0, "a step's weights are settled before the next step's gradients leave");
  options_ = options;
  for (auto& bucket : buckets_) {
    bucket.left = bucket.with_gradient;
    bucket.is_pushed = false;
  }
  is_open_ = true;
}

void Exchange::on_gradient(size_t parameter) {
  auto& bucket = buckets_[bucket_of_[parameter]];
  if (!is_open_ || bucket.is_pushed) return;
  if (bucket.is_late && trouble_ && network_.says_use()) {
    trouble_ =
        fail(ErrorKind::kInvalid,
             "the network's forward reads {} before it says use() of that part", keys_[parameter]);
  }
  if (--bucket.left == 0) push(bucket_of_[parameter]);
}

void Exchange::push(size_t at) {
  auto& bucket = buckets_[at];
  if (bucket.is_pushed || !trouble_) return;
  bucket.is_pushed = true;
  dtkv_push_options options = options_;
  options.priority = static_cast<int>(at);
  note(dtkv_pushpull(kv_.get(), bucket.count, &keys_[bucket.first], &gradients_[bucket.first],
                     &out_[bucket.first], &options, &bucket.handle));
  if (trouble_) ++under_way_;
}

Result<void> Exchange::push_rest() {
  for (size_t at = buckets_.size(); at-- > 0;) push(at);
  is_open_ = false;
  return trouble_;
}

void Exchange::on_use(const torch::nn::Module& part) {
  if (under_way_ == 0) return;
  const auto* from = flat_.values.data_ptr<float>();
  for (const auto& parameter : part.parameters()) {
    const int64_t offset = parameter.data_ptr<float>() - from;
    const auto holds = [offset](const Bucket& b) { return b.begin <= offset && offset < b.end; };
    const auto found = std::ranges::find_if(buckets_, holds);
    if (found != buckets_.end()) take_over(static_cast<size_t>(found - buckets_.begin()));
  }
}

void Exchange::take_over(size_t at) {
  auto& bucket = buckets_[at];
  if (bucket.handle == 0 || !trouble_) return;
  note(dtkv_wait(kv_.get(), bucket.handle, 0));
  if (!trouble_) return;
  bucket.handle = 0;
  --under_way_;
  const auto bytes = static_cast<size_t>((bucket.end - bucket.begin) * kFloat);
  // Not torch's copy_: use() may be said where gradients are recorded.
  std::memcpy(flat_.values.data_ptr<float>() + bucket.begin, incoming_.data() + bucket.begin,
              bytes);
  std::memset(gradients_at_.data() + bucket.begin, 0, bytes);
}

Result<void> Exchange::settle() {
  for (size_t at = buckets_.size(); at-- > 0;) {
    buckets_[at].is_late = buckets_[at].handle != 0;
    take_over(at);
  }
  return trouble_;
}

void Exchange::forget() {
  if (under_way_ > 0) dtkv_wait_all(kv_.get(), 0);  // done at once, all of them
  under_way_ = 0;
  for (auto& bucket : buckets_) bucket.handle = 0;
  std::memset(gradients_at_.data(), 0, static_cast<size_t>(flat_.values.numel() * kFloat));
  is_open_ = false;
  trouble_ = {};
}

void Exchange::note(int code) {
  if (trouble_) trouble_ = checked(code, "exchange gradients");
}

}  // namespace dt
