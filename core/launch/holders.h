/// Holders: jobs of one node that `dtctl grow` gives to Slurm. While one runs, its node belongs to
/// a dtlaunch job, and srun starts the agent there inside of it. All that is known of them is in
/// Slurm's queue: the dtlaunch job is in the holder's name and comment, and so is whether its host
/// was added. Each is a Machine: its id is Slurm's number, which rises, and so does its order. Pure
/// text work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/fleet/fleet_plan.h"

namespace dt {

/// What nobody uses is given back; Slurm keeps one mark, in the holder's comment.
constexpr FleetRules kHolderRules{
    .returns_idle = true, .returns_at_end = true, .keeps_marks = false};

/// "dt+JOB": the name of a job's holders.
[[nodiscard]] std::string holders_name(std::string_view job);
/// The holder's comment in Slurm: "dtlaunch:JOB", then " slots=N" where it is not 1,
/// " joined" for whatever mark, " for=N" (`replaces`) and " keep=WORDS", percent-encoded.
[[nodiscard]] std::string holder_comment(std::string_view job, const Machine& holder);

/// squeue's arguments that list the job's holders as parse_holders() reads them.
[[nodiscard]] std::vector<std::string> list_holders_words(std::string_view job);
/// Those of the job, by their numbers; a mark is kAdded or none. kProtocol: a line of another form,
/// of which no part counts.
[[nodiscard]] Result<std::vector<Machine>> parse_holders(std::string_view squeue,
                                                         std::string_view job);
/// The first of them that runs on the node; null: none.
[[nodiscard]] const Machine* holder_on(const std::vector<Machine>& holders, std::string_view node);

/// What a holder has to know.
struct HolderOrder {
  std::string job = {};
  std::uint32_t slots = 1;
  std::string log = {};  ///< Where its own output goes; "%j" stands for its number.
  std::vector<std::string> excluded = {};  ///< Nodes that are the job's already.
  std::vector<std::string> words = {};     ///< The user's, for sbatch.
  bool is_kept = false;                    ///< Machine::kept
  std::string replaces = {};               ///< Machine::replaces
  std::string agent = {};                  ///< Path of dtagent, where a node has it.
  std::uint32_t lonely_s = 60;             ///< It ends when no agent has come for so long.
};
/// sbatch's arguments; the script comes by stdin. The user's words may change what Slurm gives, but
/// neither the number of nodes nor what the holder is found by.
[[nodiscard]] std::vector<std::string> submit_words(const HolderOrder& order);
/// The holder's script: `dtagent --hold` of its path, or of the programs that the supervisor copies
/// to the node.
[[nodiscard]] std::string holder_script(const HolderOrder& order);

}  // namespace dt
