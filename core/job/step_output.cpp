#include "core/job/step_output.h"

#include <algorithm>
#include <utility>

namespace dt {

std::vector<Effect> StepOutput::take() {
  const auto is_end = [](const Effect& e) { return std::holds_alternative<End>(e); };
  const auto end = std::find_if(effects_.begin(), effects_.end(), is_end);
  if (end != effects_.end()) effects_.erase(end + 1, effects_.end());
  return std::move(effects_);
}

void StepOutput::note(Note::Kind kind, std::string what, std::string text,
                      std::optional<WorkerId> worker, std::optional<Host> host) {
  add(Note{kind, std::move(what), std::move(text), worker, std::move(host)});
}

void StepOutput::record(Record record) {
  apply_(record);
  add(Append{std::move(record)});
}

}  // namespace dt
