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

/// One worker's samples of one step. No samples: the worker takes part in the step but adds nothing
/// to it.
struct DataBatch {
  std::array<std::uint32_t, 3> shape{};  ///< One sample's channels, height, width.
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
  /// Creates iterators for part kv.rank() of kv.num_workers(). Called before the first epoch, and
  /// again at an epoch's boundary if one of the two has changed; the earlier iterators are
  /// destroyed before. Keep it fast: the other workers wait in their first step.
  virtual DataIterators get_data_iterator(const dtkv::KVStore& kv) = 0;
};

struct BatchOptions {
  std::uint32_t per_worker =
      64;                    ///< Samples per step of one worker; the whole batch grows with them.
  std::uint32_t global = 0;  ///< If not 0: samples per step of all workers together, instead.
  std::uint32_t per_epoch = 0;  ///< Samples of an epoch; 0: all.
  std::uint64_t seed = 1;       ///< For the order and augmentation; the same on all workers.
  /// Moves training pictures by up to 4 pixels and mirrors them. The result depends only on seed,
  /// epoch and sample, not on the number of workers, and is the same after a rollback.
  bool augment = false;
  bool evaluates = true;  ///< False: there is no iterator for the test set.
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
