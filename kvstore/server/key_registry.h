/// The job's key table, at the first server's loop 0: which keys there are, who created each, and
/// which parameters each worker initialises before the first epoch boundary. Workers with different
/// parameters would wait for one another for ever: at the first boundary all have said theirs, and
/// each is compared with the first. Pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tl/expected.hpp>
#include <unordered_map>
#include <vector>

#include "kvstore/protocol/messages.h"
#include "kvstore/server/rounds.h"

namespace dt::kv {

inline constexpr std::size_t kMaxChunks = std::size_t{4} << 20;

class KeyRegistry {
 public:
  /// The keys of the checkpoint to begin with.
  void restore(const std::vector<data::KeySpec>& keys) {
    for (const auto& key : keys) create(key, std::nullopt);
  }
  /// The worker initialises these keys; the first contributor creates those that are not there.
  /// False: it has to, and may still do so. A failure undoes nothing: some of the keys are known.
  [[nodiscard]] tl::expected<bool, data::Failure> add(const data::RegisterKeys& wanted,
                                                      WorkerId worker, const Members& members,
                                                      bool first_is_at_barrier);
  /// The keys after the first `known` ones.
  [[nodiscard]] data::KeyTable table(std::uint32_t known) const;
  [[nodiscard]] const std::vector<data::KeySpec>& keys() const { return keys_; }
  /// The worker creates no key before the boundary at which it is.
  void arrive(WorkerId worker) { arrived_.insert(worker); }
  /// The epoch of these workers, in rank order, has ended. At the first boundary they are compared;
  /// a worker that has initialised no parameter is not.
  void end_epoch(const std::vector<WorkerId>& workers);
  /// Which parameter the worker lacks, as the comparison has shown; empty: none.
  [[nodiscard]] std::string lack_of(WorkerId worker) const;

 private:
  using Index = std::unordered_map<std::string, std::size_t>;
  Index::iterator create(const data::KeySpec& key, std::optional<WorkerId> creator);
  [[nodiscard]] bool has_room_for(const data::KeySpec& key) const;
  /// Before the comparison: the first parameter that `first` has and `worker` lacks; null: none.
  [[nodiscard]] const std::string* lack_of(WorkerId worker, WorkerId first) const;
  /// Why nobody will create the key that the worker wants; empty: it may be created.
  [[nodiscard]] std::string never_created(const std::string& key, WorkerId worker,
                                          const Members& members, bool first_is_at_barrier) const;

  std::vector<data::KeySpec> keys_;  ///< By KeyId.
  /// By KeyId: the worker that created the key; none: it is from a checkpoint.
  std::vector<std::optional<WorkerId>> creators_;
  Index index_;
  bool is_compared_ = false;
  std::map<WorkerId, std::vector<bool>> has_;  ///< By KeyId. Empty after the comparison.
  std::map<WorkerId, std::string> lacks_;      ///< As lack_of() says it.
  std::set<WorkerId> arrived_;
  std::size_t bytes_ = 0;   ///< Approximate bytes of a KeyTable with all keys.
  std::size_t chunks_ = 0;  ///< Number of all keys' chunks, at the usual chunk size.
};

}  // namespace dt::kv
