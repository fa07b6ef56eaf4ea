#include "core/fleet/fleet_word.h"

#include <string_view>

namespace dt {
namespace {

constexpr std::string_view kSlurm = "slurm";
constexpr std::string_view kCommand = "command:";
constexpr std::string_view kKubernetes = "kubernetes";

}  // namespace

Result<FleetWord> parse_fleet(const std::string& word) {
  if (word == kSlurm) return FleetWord{};
  const std::string name = word.substr(0, word.find(':'));
  if (name == kKubernetes) {
    if (name.size() + 1 >= word.size())
      return fail(ErrorKind::kInvalid, "the StatefulSet's name is missing: {}:NAME", name);
    return FleetWord{FleetWord::Kind::kProgram, word.substr(name.size() + 1), name};
  }
  if (!word.starts_with(kCommand)) {
    if (word.substr(0, word.find(' ')).find('/') != std::string::npos)
      return FleetWord{FleetWord::Kind::kProgram, word};
    return fail(ErrorKind::kInvalid,
                "{}PROGRAM, {}:STATEFULSET, {} or the path of a provider's program (with a /) was "
                "expected",
                kCommand, kKubernetes, kSlurm);
  }
  FleetWord fleet{FleetWord::Kind::kCommand, word.substr(kCommand.size())};
  if (fleet.words.find_first_not_of(" \t\n") == std::string::npos)
    return fail(ErrorKind::kInvalid, "the program that prints the hosts is missing: {}PROGRAM",
                kCommand);
  return fleet;
}

}  // namespace dt
