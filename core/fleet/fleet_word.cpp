#include "core/fleet/fleet_word.h"

#include <string_view>

namespace dt {
namespace {

constexpr std::string_view kSlurm = "slurm";
constexpr std::string_view kCommand = "command:";

}  // namespace

Result<FleetWord> parse_fleet(const std::string& word) {
  if (word == kSlurm) return FleetWord{};
  if (!word.starts_with(kCommand)) {
    if (word.substr(0, word.find(' ')).find('/') != std::string::npos)
      return FleetWord{FleetWord::Kind::kProgram, word};
    return fail(ErrorKind::kInvalid,
                "{}PROGRAM, {} or the path of a provider's program (with a /) was expected",
                kCommand, kSlurm);
  }
  FleetWord fleet{FleetWord::Kind::kCommand, word.substr(kCommand.size())};
  if (fleet.words.find_first_not_of(" \t\n") == std::string::npos)
    return fail(ErrorKind::kInvalid, "the program that prints the hosts is missing: {}PROGRAM",
                kCommand);
  return fleet;
}

}  // namespace dt
