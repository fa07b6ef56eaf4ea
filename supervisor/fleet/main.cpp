/// dtfleet: gives a job the machines that a scheduler has for it, and gives them back.
#include <unistd.h>

#include <boost/asio/use_future.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <string_view>
#include <vector>

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
    "Usage: dtfleet [--job-dir DIR] [--folder DIR] PROVIDER\n"
    "       dtfleet aws status STACK\n"
    "       dtfleet aws down STACK\n"
    "\n"
    "Adds the machines to a job that a provider has for it, as they come, and takes\n"
    "out those that go. The job's supervisor starts it; killed, it is started again\n"
    "and goes on: all that it knows is at the provider and in the job.\n"
    "\n"
    "  slurm            the nodes that `dtctl grow` has asked Slurm for; they are\n"
    "                   given back when the job wants them no more\n"
    "  command:PROGRAM  what the program prints each 5 s: HOST or HOST:SLOTS a line,\n"
    "                   and leave=SECONDS behind a host that goes away\n"
    "  aws:STACK        the EC2 instances of a cluster; `aws status` shows them, `aws\n"
    "                   down` ends them with all that the stack has made\n"
    "  kubernetes:NAME  the pods of the StatefulSet NAME, by kubectl\n"
    "  ./PROGRAM        a path with a / in it: a program that speaks the protocol of\n"
    "                   provider.md (in dtlaunch's documents)\n";

io::Flags flags_of(std::string& job_dir, std::string& folder) {
  // clang-format off
  return {{"Options", {
      {.name = "job-dir", .value = "DIR", .to = &job_dir,
       .help = "the job's folder (the present one)",
       .manual = "The job's folder; by default the present one."},
      {.name = "folder", .value = "DIR", .to = &folder,
       .help = "where a program runs (the present one)",
       .manual = "Where a provider's program runs; by default the present folder."},
      {.name = "version", .help = "print the version"},
      {.name = "help", .letter = 'h', .help = "print this help",
       .manual = "Print the options."},
  }}};
  // clang-format on
}

/// `aws status`, `aws down`: the provider's program does it; returns only if it cannot be begun.
int hand_over(char** argv) {
  const std::string program = supervisor::our_provider(argv[1]);
  std::vector<char*> words = {const_cast<char*>("python3"), const_cast<char*>(program.c_str())};
  for (char** word = argv + 2; *word != nullptr; ++word) words.push_back(*word);
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  fmt::print(stderr, "dtfleet: python3: {}\n", std::strerror(errno));
  return kExitFailure;
}

int run(const std::string& job_dir, const FleetWord& provider, const std::string& folder) {
  io::asio::io_context context(1);
  const auto whole = [](const std::string& path) {
    return std::filesystem::absolute(path).lexically_normal().string();
  };
  supervisor::FleetRun fleet(whole(job_dir), provider, whole(folder), std::random_device{}());
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
  const std::string_view first = argc > 2 ? argv[1] : "";
  const std::string_view second = argc > 2 ? argv[2] : "";
  if (first == "aws" && (second == "status" || second == "down")) return hand_over(argv);
  std::string job_dir = ".";
  std::string folder = ".";
  const io::Flags flags = flags_of(job_dir, folder);
  const io::Program program{.name = "dtfleet",
                            .version = version_text("dtfleet"),
                            .usage = kHelp,
                            .free = io::Free::kAnywhere};
  const auto given = io::parse(program, flags, {argv + 1, argv + argc});
  if (!given) return io::refuse(program, given.error());
  if (const auto text = io::answer(program, flags, *given))
    return std::fputs(text->c_str(), stdout) < 0;
  if (given->words.size() != 1)
    return io::refuse(
        program,
        {ErrorKind::kInvalid, given->words.empty()
                                  ? "the provider is missing: dtfleet [--job-dir DIR] slurm"
                                  : "one provider was expected: put a program's words in quotes"});
  const auto provider = parse_fleet(given->words[0]);
  if (!provider)
    return io::refuse(
        program, {ErrorKind::kInvalid,
                  fmt::format("{}: {}", io::printable(given->words[0]), provider.error().message)});
  try {
    return run(job_dir, *provider, folder);
  } catch (const std::exception& e) {
    std::fputs(fmt::format("dtfleet: {}\n", e.what()).c_str(), stderr);
    return kExitFailure;
  }
}
