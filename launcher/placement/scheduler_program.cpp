#include "launcher/placement/scheduler_program.h"

#include "io/last_words.h"
#include "io/program_output.h"

namespace dt::launcher {

Answer ask_scheduler(const std::string& program, const std::vector<std::string>& arguments,
                     std::string_view input) {
  // Slurm's own programs try to reach their controller for about 10 s.
  constexpr auto kLimit = std::chrono::seconds(15);
  if (!io::in_path(program))
    return {false, fmt::format("{} is not in PATH (Debian's package slurm-client)", program)};
  io::ProgramCall call{.argv = {program},
                       .input = std::string(input),
                       .is_without = changes_squeue,
                       .deadline = kLimit};
  call.argv.insert(call.argv.end(), arguments.begin(), arguments.end());
  auto ended = io::program_output(std::move(call));
  if (!ended) {
    const auto kind = ended.error().kind;
    const bool is_late = kind == ErrorKind::kTimeout || kind == ErrorKind::kProtocol;
    return {false, is_late ? fmt::format("{} gave no answer within {} s", program, kLimit.count())
                           : ended.error().message};
  }
  if (ended->status.clean()) return {true, std::move(ended->out)};
  std::string words = io::last_line(ended->words);
  if (words.empty()) words = fmt::format("{} ended with {}", program, to_string(ended->status));
  return {false, std::move(words)};
}

}  // namespace dt::launcher
