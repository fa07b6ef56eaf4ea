#include "trainer/lr_schedule.h"

#include <algorithm>

#include "core/base/number.h"

namespace dt::train {

float learning_rate(const LrOptions& options, std::uint32_t epoch, std::uint32_t step,
                    const Worlds& worlds) {
  double rate = options.rate;
  for (const std::uint32_t at : options.factor_epochs)
    if (epoch >= at) rate *= options.factor;
  if (!options.follows_world) return static_cast<float>(rate);
  const double moved =
      step >= options.smooth_steps ? 1.0 : (step + 1.0) / (options.smooth_steps + 1.0);
  const double world = worlds.last + moved * (static_cast<double>(worlds.now) - worlds.last);
  return static_cast<float>(rate * world / worlds.initial);
}

Result<std::vector<std::uint32_t>> parse_epochs(std::string_view text) {
  std::vector<std::uint32_t> epochs;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    const auto word = text.substr(0, comma);
    const auto epoch = parse_number<std::uint32_t>(word);
    if (!epoch)
      return fail(ErrorKind::kInvalid, "\"{}\" is not an epoch; write them as 30,60,80", word);
    if (!epochs.empty() && *epoch <= epochs.back())
      return fail(ErrorKind::kInvalid, "epoch {} after {}: they must rise", *epoch, epochs.back());
    epochs.push_back(*epoch);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return epochs;
}

}  // namespace dt::train
