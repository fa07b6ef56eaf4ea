#include "trainer/data/iterator.h"

#include <algorithm>

namespace dt::train {
namespace {

constexpr std::uint32_t kEvalBatch = 256;
constexpr int kMove = 4;  // pixels, as usual for CIFAR-10

/// The picture moved by (dx, dy) and perhaps mirrored; new pixels at the edge are 0, the mean.
void moved(const std::array<std::uint32_t, 3>& shape, int dx, int dy, bool mirror,
           const float* from, float* to) {
  const auto [channels, height, width] = shape;
  for (std::uint32_t c = 0; c < channels; ++c) {
    for (std::uint32_t y = 0; y < height; ++y) {
      for (std::uint32_t x = 0; x < width; ++x) {
        const auto sx = static_cast<std::int64_t>(mirror ? width - 1 - x : x) + dx;
        const auto sy = static_cast<std::int64_t>(y) + dy;
        const bool inside = sx >= 0 && sx < width && sy >= 0 && sy < height;
        const auto row = std::size_t{c} * height + static_cast<std::size_t>(sy);
        *to++ = inside ? from[row * width + static_cast<std::size_t>(sx)] : 0.0F;
      }
    }
  }
}

/// The seed of a picture's augmentation in an epoch: the same on every worker, and each time that
/// the epoch begins.
Random random_of(std::uint64_t seed, std::uint32_t epoch, std::uint32_t sample) {
  return Random(Random(Random(seed).next() ^ epoch).next() ^ sample);
}

class DatasetPart final : public BatchIterator {
 public:
  DatasetPart(const Dataset& set, const SamplerOptions& options, bool augment)
      : set_(set),
        sampler_(options),
        seed_(options.seed),
        augment_(augment),
        plain_(set.image_size()) {}

  void begin(std::uint32_t epoch) override {
    sampler_.begin(epoch);
    epoch_ = epoch;
    step_ = 0;
  }

  bool next(DataBatch& batch) override {
    if (step_ >= sampler_.steps()) return false;
    const auto samples = sampler_.batch(step_++);
    batch.shape = {set_.channels, set_.height, set_.width};
    batch.data.resize(samples.size() * set_.image_size());
    batch.labels.resize(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      float* to = batch.data.data() + i * set_.image_size();
      batch.labels[i] = set_.labels[samples[i]];
      if (!augment_) {
        set_.normalised(samples[i], to);
        continue;
      }
      set_.normalised(samples[i], plain_.data());
      Random random = random_of(seed_, epoch_, samples[i]);
      const int dx = static_cast<int>(random.below(2 * kMove + 1)) - kMove;
      const int dy = static_cast<int>(random.below(2 * kMove + 1)) - kMove;
      moved(batch.shape, dx, dy, random.below(2) == 1, plain_.data(), to);
    }
    return true;
  }

 private:
  const Dataset& set_;
  Sampler sampler_;
  std::uint64_t seed_;
  bool augment_;
  std::vector<float> plain_;
  std::uint32_t epoch_ = 0;
  std::uint32_t step_ = 0;
};

}  // namespace

DataIterators DatasetIterator::get_data_iterator(const dtkv::KVStore& kv) {
  const std::uint32_t world = kv.num_workers();
  const SamplerOptions train{
      .samples = data_.train.size(),
      .per_epoch = options_.per_epoch,
      .global_batch = options_.global != 0 ? options_.global : options_.per_worker * world,
      .rank = kv.rank(),
      .world = world,
      .seed = options_.seed};
  const SamplerOptions eval{.samples = data_.test.size(),
                            .global_batch = kEvalBatch * world,
                            .rank = kv.rank(),
                            .world = world,
                            .shuffle = false};
  return {std::make_unique<DatasetPart>(data_.train, train, options_.augment),
          options_.evaluates ? std::make_unique<DatasetPart>(data_.test, eval, false) : nullptr};
}

}  // namespace dt::train
