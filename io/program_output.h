/// A program of this machine that is run for its output: squeue, `ssh -G`, sha256sum. Its process
/// group is of its own, and is killed where the answer does not wait for its end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"
#include "io/awaitable.h"
#include "io/subprocess.h"

namespace dt::io {

struct ProgramCall {
  std::vector<std::string> argv;
  std::string name = {};   ///< For errors; empty: argv[0].
  std::string input = {};  ///< Its stdin.
  Without is_without = {};
  /// Whether so much output is the answer: then it is killed.
  std::function<bool(const std::string&)> is_enough = {};
  /// More output is an error. The default: a line of squeue's for each of 65536 nodes.
  std::size_t most = std::size_t{256} << 20;
  Duration deadline = std::chrono::hours(24 * 365);  ///< From its start; it is killed then.
};

struct ProgramOutput {
  ExitStatus status;  ///< 0 as well where the output was enough.
  std::string out;
  std::string words;  ///< The end of its stderr, for io/last_words.h.
};

/// kInvalid: there is no such program; kTimeout; kProtocol: it prints too much; kClosed: the wait
/// was cancelled. What it leaves behind with its output is killed; what lets go of that lives on.
awaitable<Result<ProgramOutput>> awaited_output(ProgramCall call);

/// The same, for who has no loop: blocks.
[[nodiscard]] Result<ProgramOutput> program_output(ProgramCall call);

}  // namespace dt::io
