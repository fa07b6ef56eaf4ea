#include "core/fleet/fleet_word.h"

#include <string_view>
#include <utility>

namespace dt {
namespace {

constexpr std::string_view kSlurm = "slurm";
constexpr std::string_view kCommand = "command:";
/// Programs of ours, and what stands behind the colon.
constexpr std::pair<std::string_view, std::string_view> kOurs[] = {{"kubernetes", "StatefulSet"},
                                                                   {"aws", "stack"}};

}  // namespace

Result<FleetWord> parse_fleet(const std::string& word) {
  if (word == kSlurm) return FleetWord{};
  const std::string name = word.substr(0, word.find(':'));
  for (const auto& [ours, what] : kOurs) {
    if (name != ours) continue;
    if (name.size() + 1 >= word.size())
      return fail(ErrorKind::kInvalid, "the {}'s name is missing: {}:NAME", what, name);
    return FleetWord{FleetWord::Kind::kProgram, word.substr(name.size() + 1), name};
  }
  if (!word.starts_with(kCommand)) {
    if (word.substr(0, word.find(' ')).find('/') != std::string::npos)
      return FleetWord{FleetWord::Kind::kProgram, word};
    return fail(ErrorKind::kInvalid,
                "aws:STACK, {}PROGRAM, kubernetes:STATEFULSET, {} or the path of a provider's "
                "program (with a /) was expected",
                kCommand, kSlurm);
  }
  FleetWord fleet{FleetWord::Kind::kCommand, word.substr(kCommand.size())};
  if (fleet.words.find_first_not_of(" \t\n") == std::string::npos)
    return fail(ErrorKind::kInvalid, "the program that prints the hosts is missing: {}PROGRAM",
                kCommand);
  return fleet;
}

}  // namespace dt
