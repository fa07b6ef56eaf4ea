/// dtfleet: gives a job the machines that a scheduler has for it, and gives them back.
#include <boost/asio/use_future.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "core/base/version.h"
#include "core/protocol/exit_code.h"
#include "io/asio.h"
#include "io/flags.h"
#include "io/line_prefixer.h"
#include "io/notice_signals.h"
#include "supervisor/fleet/fleet_run.h"

namespace {

using namespace dt;

constexpr const char* kHelp =
    "Usage: dtfleet [--job-dir DIR] slurm\n"
    "\n"
    "Adds the nodes to a job that `dtctl grow` has asked Slurm for, as they come, and\n"
    "gives them back when the job wants them no more. The job's supervisor starts it;\n"
    "killed, it is started again and goes on: all that it knows is in Slurm's queue\n"
    "and in the job.\n";

io::Flags flags_of(std::string& job_dir) {
  // clang-format off
  return {{"Options", {
      {.name = "job-dir", .value = "DIR", .to = &job_dir,
       .help = "the job's folder (the present one)",
       .manual = "The job's folder; by default the present one."},
      {.name = "version", .help = "print the version"},
      {.name = "help", .letter = 'h', .help = "print this help",
       .manual = "Print the options."},
  }}};
  // clang-format on
}

int run(const std::string& job_dir) {
  io::asio::io_context context(1);
  supervisor::FleetRun fleet(std::filesystem::absolute(job_dir).lexically_normal().string());
  auto ended = io::asio::co_spawn(context, fleet.run(), io::asio::use_future);
  context.run();
  const Result<void> result = ended.get();
  if (result) return kExitOk;
  fmt::print(stderr, "dtfleet: {}\n", result.error().message);
  return kExitFailure;
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);  // a supervisor that has ended shows as an error of the write
  if (io::is_in_allocation()) io::ignore_notices();
  std::string job_dir = ".";
  const io::Flags flags = flags_of(job_dir);
  const io::Program program{.name = "dtfleet",
                            .version = version_text("dtfleet"),
                            .usage = kHelp,
                            .free = io::Free::kAnywhere};
  const auto given = io::parse(program, flags, {argv + 1, argv + argc});
  if (!given) return io::refuse(program, given.error());
  if (const auto text = io::answer(program, flags, *given))
    return std::fputs(text->c_str(), stdout) < 0;
  if (given->words != io::Words{"slurm"}) {
    const std::string why =
        given->words.empty()
            ? "the scheduler is missing: dtfleet [--job-dir DIR] slurm"
            : fmt::format("{}: slurm is the only scheduler that it knows",
                          io::printable(fmt::format("{}", fmt::join(given->words, " "))));
    return io::refuse(program, {ErrorKind::kInvalid, why});
  }
  try {
    return run(job_dir);
  } catch (const std::exception& e) {
    std::fputs(fmt::format("dtfleet: {}\n", e.what()).c_str(), stderr);
    return kExitFailure;
  }
}
