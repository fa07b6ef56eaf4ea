/// How a program gives its data to Module::fit. A user derives BaseDataIterator; DatasetIterator is
/// the one for data sets in memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvstore/kvstore.h"
#include "trainer/data/data.h"
#include "trainer/data/sampler.h"

namespace dt::train {

/// What one worker takes in one step. No samples: the worker makes the step with the others but
/// adds nothing to it.
struct DataBatch {
  std::array<std::uint32_t, 3> shape{};  ///< Of one sample: channels, height, width.
  std::vector<float> data;               ///< Sample after sample.
  std::vector<std::int64_t> labels;      ///< One for each sample.
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(labels.size()); }
};

/// This worker's part of an epoch, batch by batch.
class BatchIterator {
 public:
  virtual ~BatchIterator() = default;
  /// Goes to the beginning of an epoch.
  virtual void begin(std::uint32_t epoch) = 0;
  /// The next batch; false at the epoch's end. Workers need not have equally many.
  virtual bool next(DataBatch& batch) = 0;
};

struct DataIterators {
  std::unique_ptr<BatchIterator> train;
  std::unique_ptr<BatchIterator> eval;  ///< May be null: no evaluation.
};

class BaseDataIterator {
 public:
  virtual ~BaseDataIterator() = default;
  /// Makes iterators for part kv.rank() of kv.num_workers(). Called before the first epoch, and
  /// again at an epoch's boundary whenever one of the two has changed; the earlier ones are gone
  /// by then. Keep it fast: the others wait in their first step.
  virtual DataIterators get_data_iterator(const dtkv::KVStore& kv) = 0;
};

struct BatchOptions {
  std::uint32_t per_worker =
      64;                    ///< Samples a step of one worker; the whole batch follows the world.
  std::uint32_t global = 0;  ///< If not 0: samples a step of all together, instead.
  std::uint32_t per_epoch = 0;  ///< Samples of an epoch; 0: all.
  std::uint64_t seed = 1;       ///< Of the order and of augmentation; the same on all workers.
  /// Training pictures moved by up to 4 pixels and mirrored, as seed, epoch and sample alone say:
  /// however many workers there are, and after a rollback as before.
  bool augment = false;
};

/// Parts of a data set in memory.
class DatasetIterator final : public BaseDataIterator {
 public:
  /// `data` must outlive this and its iterators.
  DatasetIterator(const DataPair& data, BatchOptions options) : data_(data), options_(options) {}
  DataIterators get_data_iterator(const dtkv::KVStore& kv) override;

 private:
  const DataPair& data_;
  BatchOptions options_;
};

}  // namespace dt::train
