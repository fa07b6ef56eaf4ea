/// What every command of dtctl has: its arguments, and the two ways to give up.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"
#include "core/protocol/exit_code.h"
#include "io/flags.h"
#include "io/volume_answers.h"

namespace dt::supervisor::ctl {

inline constexpr int kExitNoJob = 3;  ///< No job is running there, or it ended meanwhile.
inline constexpr int kExitLate = 4;   ///< wait: not in time.

struct Arguments {
  std::string job_dir = ".";
  std::string command;
  std::string synopsis;            ///< "leave HOST [--cancel]".
  std::vector<std::string> words;  ///< The arguments after the command.
  bool json = false;
  bool watch = false;
  bool all = false;
  bool force = false;
  bool follow = false;
  bool start = false;
  bool cancel = false;
  bool keep = false;
  bool has_deadline = false;  ///< `in` was given.
  Duration in{};
  std::string why;
  Duration timeout{};  ///< From `begun` on. 0: none.
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  std::shared_ptr<io::VolumeQuestion> volume;  ///< Asks the volume of job_dir.
};

/// The options of all commands.
inline io::FlagGroup common_flags(std::string& job_dir) {
  // clang-format off
  return {"Options", {
      {.name = "job-dir", .value = "DIR", .to = &job_dir,
       .help = "the job's folder; default: the present one"},
      {.name = "version"},
      {.name = "help", .letter = 'h', .help = "print this"}}};
  // clang-format on
}

/// The command line is wrong.
struct Usage {
  std::string why;
};
/// The command's words are missing, or too many.
inline Usage wrong_words(const Arguments& args) { return {"usage: dtctl " + args.synopsis}; }
/// The command cannot go on.
struct Failed {
  Error error;
  int exit_code;
};

/// The value, or Failed.
template <class T>
T need(Result<T> result, int exit_code = kExitFailure) {
  if (!result) throw Failed{result.error(), exit_code};
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// Prints the error; returns the exit code.
int complain(const Error& error, int code = kExitFailure);

}  // namespace dt::supervisor::ctl
