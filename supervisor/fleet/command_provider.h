/// A discovery script as a provider: it prints the hosts that there are
/// (core/fleet/discovered_hosts.h), and the job has workers on them. A host that two outputs in a
/// row lack is left. The script gets no request: nothing is asked for, and nothing is given back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "supervisor/fleet/provider.h"

namespace dt::supervisor {

class CommandProvider : public Provider {
 public:
  /// /bin/sh runs `words` in `folder`; for 10 s at most.
  CommandProvider(std::string words, std::string folder)
      : words_(std::move(words)), folder_(std::move(folder)) {}

  [[nodiscard]] std::string name() const override { return words_; }
  [[nodiscard]] FleetRules rules() const override { return {}; }
  [[nodiscard]] Duration longest_pause() const override;
  [[nodiscard]] std::string text(const std::vector<Machine>& machines) const override;
  io::awaitable<Result<std::vector<Machine>>> list(std::vector<Machine> known) override;

 private:
  std::string words_;
  std::string folder_;
  std::map<std::string, int> lacks_;  ///< By id: outputs in a row that lack it.
};

}  // namespace dt::supervisor
