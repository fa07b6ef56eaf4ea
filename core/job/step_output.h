/// The output of one step of the job machine: records, notes and other effects, in their order.
/// Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/job/events.h"
#include "core/job/records.h"

namespace dt {

class StepOutput {
 public:
  /// `apply` changes the durable state; record() calls it, and nothing else does while a job runs.
  explicit StepOutput(std::function<void(const Record&)> apply) : apply_(std::move(apply)) {}

  /// A step begins at `now`.
  void begin(Instant now) {
    now_ = now;
    effects_.clear();
  }
  /// The step's effects. None follows an End.
  [[nodiscard]] std::vector<Effect> take();

  [[nodiscard]] const Instant& now() const { return now_; }
  void add(Effect effect) { effects_.push_back(std::move(effect)); }
  void note(Note::Kind kind, std::string what, std::string text,
            std::optional<WorkerId> worker = std::nullopt, std::optional<Host> host = std::nullopt);
  /// Applies the record, and appends it to the journal.
  void record(Record record);

 private:
  std::function<void(const Record&)> apply_;
  Instant now_;
  std::vector<Effect> effects_;
};

}  // namespace dt
