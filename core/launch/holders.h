/// Holders: jobs of one node that `dtctl grow` gives to Slurm. While one runs, its node belongs to
/// a dtlaunch job, and srun starts the agent there inside of it. All that is known of them is in
/// Slurm's queue: the dtlaunch job is in the holder's name and comment, and so is whether its host
/// was added. Pure text work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace dt {

enum class HolderState {
  kPending,  ///< Not running yet, for whatever reason.
  kRunning,
  kEnding,  ///< It lets its node go.
};

struct Holder {
  std::uint32_t id = 0;  ///< Slurm's number; they rise.
  HolderState state = HolderState::kPending;
  std::string node;         ///< Empty unless it runs.
  std::string reason;       ///< Why it is pending, in Slurm's word: "Priority".
  std::uint32_t slots = 1;  ///< Workers for its host.
  bool is_joined = false;   ///< Its host was added to the dtlaunch job.
  /// sbatch's words for a replacement when Slurm takes the node; nullopt: no replacement.
  std::optional<std::vector<std::string>> kept = std::nullopt;
  std::uint32_t replaces = 0;  ///< The holder whose node Slurm took; 0: none.

  friend bool operator==(const Holder&, const Holder&) = default;
};

/// "dt+JOB": the name of a job's holders.
[[nodiscard]] std::string holders_name(std::string_view job);
/// The holder's comment in Slurm: "dtlaunch:JOB", then " slots=N" where it is not 1,
/// " joined", " for=N" (`replaces`) and " keep=WORDS", percent-encoded.
[[nodiscard]] std::string holder_comment(std::string_view job, const Holder& holder);

/// squeue's arguments that list the job's holders as parse_holders() reads them.
[[nodiscard]] std::vector<std::string> list_holders_words(std::string_view job);
/// Those of the job, by their numbers. kProtocol: a line of another form, of which no part counts.
[[nodiscard]] Result<std::vector<Holder>> parse_holders(std::string_view squeue,
                                                        std::string_view job);
/// The first of them that runs on the node; null: none.
[[nodiscard]] const Holder* holder_on(const std::vector<Holder>& holders, std::string_view node);

/// What a holder has to know.
struct HolderOrder {
  std::string job = {};
  std::uint32_t slots = 1;
  std::string log = {};  ///< Where its own output goes; "%j" stands for its number.
  std::vector<std::string> excluded = {};  ///< Nodes that are the job's already.
  std::vector<std::string> words = {};     ///< The user's, for sbatch.
  bool is_kept = false;                    ///< Holder::kept
  std::uint32_t replaces = 0;              ///< Holder::replaces
  std::string agent = {};                  ///< Path of dtagent, where a node has it.
  std::uint32_t lonely_s = 60;             ///< It ends when no agent has come for so long.
};
/// sbatch's arguments; the script comes by stdin. The user's words may change what Slurm gives, but
/// neither the number of nodes nor what the holder is found by.
[[nodiscard]] std::vector<std::string> submit_words(const HolderOrder& order);
/// The holder's script: `dtagent --hold` of its path, or of the programs that the supervisor copies
/// to the node.
[[nodiscard]] std::string holder_script(const HolderOrder& order);

/// "3 asked for, 2 pending (Priority, Resources)"; empty without holders.
[[nodiscard]] std::string holders_for_people(const std::vector<Holder>& holders);

}  // namespace dt
