#include "launcher/cli/option_table.h"

#include <boost/program_options/value_semantic.hpp>
#include <sstream>

#include "core/base/result.h"
#include "core/protocol/device_choice.h"
#include "core/protocol/exit_code.h"
#include "io/job/control_protocol.h"

namespace dt::launcher {
namespace {

namespace po = boost::program_options;

constexpr unsigned kHelpWidth = 100;

/// Every value is taken as text: our own readers say better than a cast what was expected.
po::typed_value<std::string>* word(const char* shown) {
  return po::value<std::string>()->value_name(shown);
}
po::typed_value<Words>* words(const char* shown) { return po::value<Words>()->value_name(shown); }

}  // namespace

std::vector<po::options_description> option_groups() {
  std::vector<po::options_description> all;
  auto add = [&all](const char* title) -> po::options_description_easy_init {
    return all.emplace_back(title, kHelpWidth).add_options();
  };
  all.reserve(8);
  add("Job")("num-workers,n", word("N"), "workers to start (required)")(
      "num-servers,s", word("N"),
      "kvstore servers; default: one per host that gets a worker, up to 64; 0: none")(
      "dmlc-roles", po::bool_switch(),
      "for programs with roles of their own (ps-lite): servers, and a scheduler on the first host, "
      "run the command too, with DMLC_ROLE=server and scheduler")(
      "hostfile,H", word("FILE"), "hosts, one per line: [user@]host[:port] [slots=N]")(
      "launcher", word("ssh|local"), "default: ssh with -H, else local (this machine, no ssh)")(
      kElastic, word("[True|False]"),
      "watch host_worker in the job folder: editing it adds and removes workers")(
      "min-workers", word("N"),
      "an epoch begins with at least so many; with fewer the job waits for restarts and added "
      "hosts")("max-workers", word("N"),
               "no more are started, whatever host_worker asks for; its first lines come first")(
      "job-dir", word("DIR"),
      "folder of host_worker, host_worker_log and logs, on a volume that all hosts see; default: "
      "the present folder")("detach", po::bool_switch(),
                            "return as soon as the job's supervisor is ready; see dtctl")(
      "resume", word("DIR"),
      "go on with the last job of this job folder: with its processes where they live, else from "
      "its newest checkpoint; no command and no other options")(
      "take-over", po::bool_switch(),
      "with --resume: the machine whose dtlaunch ran it is surely gone, whatever the folder's lock "
      "says")("again", po::bool_switch(),
              "with --resume: also a job that has finished, from its newest checkpoint")(
      "env-file", word("FILE"),
      "with --resume on another machine: values of the job's --env names, a NAME=VALUE per line; "
      "the others are taken from the environment")("dry-run", po::bool_switch(),
                                                   "show who would run where, and start nothing");
  add("Data and environment")("env", words("NAME[=VALUE]"),
                              "give every process this variable; NAME alone: with its value here")(
      "env-server", words("NAME[=VALUE]"), "the same for servers")(
      "env-worker", words("NAME[=VALUE]"), "the same for workers")(
      "sync-dst-dir", word("DIR"), "copy the present folder to DIR on all hosts and run there")(
      "no-shared-folder", po::bool_switch(),
      "hosts need not have the present folder: workers start in the home folder where it is "
      "missing")("prepare-data", word("CMD"),
                 "run by a shell on each host before its first worker")(
      "require-prepared", po::bool_switch(),
      "without --prepare-data: an added host waits for its prepare_data_success file");
  add("ssh")("ssh-port", word("PORT"), "for hosts that give none")(
      "ssh-user", word("USER"), "for hosts that give none")("ssh-identity,i", words("FILE"),
                                                            "private key; may be given again")(
      "ssh-config", word("FILE"), "instead of ~/.ssh/config; \"none\": no file")(
      "ssh-known-hosts", word("strict|accept-new|off|config"),
      "what to do with a host's key that is not known; default: what the ssh config says, else "
      "accept-new")("forward-agent,A", po::bool_switch(), "forward the ssh agent to the hosts")(
      "ssh-connect-timeout", word("TIME"), "10 s; twice that for key exchange and login");
  add("Data plane")("interface", word("NAME"),
                    "network interface for gradients, the same name on all hosts")(
      "server-port", word("PORT"), "first port of the servers on a host; default: any free one")(
      "transport", word("auto|tcp|shm"),
      "between workers and servers: auto (default) is shared memory on one host, else TCP")(
      "deterministic", po::bool_switch(),
      "servers sum in the workers' order, not as gradients arrive: two runs give the same bits")(
      "server-device", word("cpu|auto|cuda:N"),
      "where servers keep and compute values: auto is a GPU where there is one (cpu)")(
      "refuse-nonfinite", po::bool_switch(),
      "a gradient with infinite or NaN elements is an error")(
      "busy-poll", word("US"), "microseconds to poll for an answer before sleeping (0)");
  add("Time and failure (TIME: seconds, or with ms, s, m, h)")(
      "max-restarts", word("N"), "restarts of failed members, per worker a host is to have (3)")(
      "restart-refill", word("TIME"),
      "without a failure on a host gives it a restart back (600 s)")(
      "max-futile-restarts", word("N"),
      "restarts without a completed epoch between them, before the job ends with code 70 (10, or 3 "
      "per worker)")("min-workers-timeout", word("TIME"),
                     "with fewer than --min-workers, before the job ends with code 71 (600 s)")(
      "start-timeout", word("TIME"), "from a base worker's start to its first epoch (600 s)")(
      "prepare-timeout", word("TIME"), "for --prepare-data on a host (1 h)")(
      "boundary-timeout", word("TIME"), "waiting for a member at an epoch's start (600 s)")(
      "hang-timeout", word("TIME"),
      "for a member that does nothing while others wait for it in a step (600 s)")(
      "leave-timeout", word("TIME"), "for a removed worker to end by itself (30 s)")(
      "stop-timeout", word("TIME"), "between TERM and KILL when the job is stopped (10 s)")(
      "suspect-after", word("TIME"), "of a host's silence: nothing is begun there (1 s)")(
      "dead-after", word("TIME"), "of a host's silence: it counts as lost (3 s)")(
      "server-dead-after", word("TIME"), "of a kvstore server's silence: it counts as lost (3 s)")(
      "checkpoint-interval", word("TIME"),
      "save the servers' state at the first epoch's end, then at the first one after so long, or "
      "20 times what the last one took (60 s); where all base hosts see the job folder")(
      "checkpoint-every", word("N"), "instead, before every so many epochs; 0: never")(
      "keep-checkpoints", word("N"), "the newest so many stay (2)")(
      "orphan-timeout", word("TIME"), "hosts stop everything after so long unsupervised (300 s)")(
      "poll-interval", word("TIME"), "between looks at host_worker (1 s)");
  add("Output")("no-prefix", po::bool_switch(), "show processes' lines as they are")(
      "log-limit", word("SIZE"),
      "a process's output in the job folder, 500M or 2G: the older half goes (no limit)")(
      "quiet,q", po::bool_switch(), "only warnings and errors on the terminal")(
      "version", po::bool_switch(), "show the version")("help,h", po::bool_switch(), "show this");
  return all;
}

po::options_description all_options() {
  po::options_description all;
  for (const auto& group : option_groups()) all.add(group);
  return all;
}

bool takes_value(const po::option_description& option) {
  return option.semantic()->max_tokens() > 0;
}

bool is_repeatable(const po::option_description& option) {
  return dynamic_cast<const po::typed_value<Words>*>(option.semantic().get()) != nullptr;
}

std::string help() {
  std::ostringstream out;
  out << "Usage: dtlaunch -n N [options] command [arguments]\n"
         "Runs command as N workers on this machine or, with -H, on hosts over ssh, beside the\n"
         "kvstore servers they exchange gradients through. Everything from the command's first\n"
         "word on belongs to the command; \"--\" ends the options.\n\n"
         "What the command must be:\n"
         "  to join and leave while it trains   a program that trains through the kvstore and "
         "says\n"
         "                                      where its epochs begin (dttrain, or yours with\n"
         "                                      dtkv_epoch_boundary), with\n"
         "                                      --elastic-training-enabled\n"
         "  to be started, watched and stopped  any other one; it finds RANK, WORLD_SIZE,\n"
         "                                      MASTER_ADDR and MASTER_PORT in its environment "
         "(man\n"
         "                                      dtlaunch), and -s 0 leaves the servers out\n\n"
         "Examples:\n"
         "  dtlaunch -n 2 dttrain                              two workers on this machine\n"
         "  dtlaunch -n 2 -s 0 python3 ddp.py                  the same of a torch.distributed "
         "script\n"
         "  dtlaunch -n 2 -H hosts --elastic-training-enabled dttrain --network lenet\n"
         "  echo 10.0.1.9 >> host_worker                       one more, from the next epoch on\n"
         "  dtctl status                                       how the job in this folder is "
         "doing\n";
  for (const auto& group : option_groups()) out << "\n" << group;
  out << "\nCtrl-C stops the job; a second Ctrl-C kills it at once; a third leaves without "
         "waiting.\n"
         "\nExit codes:\n"
         "  0     every worker of the last view ended well (with --detach: the supervisor is "
         "ready)\n"
      << fmt::format(
             "  {:<5} wrong option or file, nothing was started\n"
             "  {:<5} a base host could not be reached or prepared\n"
             "  {:<5} a base worker did not reach its first epoch in time\n"
             "  {:<5} a kvstore server was lost and there was no checkpoint to go back to\n"
             "  {:<5} a job is running in this folder already\n"
             "  {:<5} the supervisor died and could not be restarted\n"
             "  {:<5} restart after restart and no epoch completed: do not requeue\n"
             "  {:<5} fewer workers than --min-workers for too long\n"
             "  {:<5} a server lacks the device that --server-device asks for\n"
             "  {:<5} the command could not be executed\n"
             "  {:<5} stopped by Ctrl-C, TERM or dtctl stop\n",
             static_cast<int>(kExitUsage), static_cast<int>(kExitUnreachable),
             static_cast<int>(kExitStartTimeout), static_cast<int>(kExitServerLost),
             static_cast<int>(kExitJobRunning), static_cast<int>(kExitSupervisorLost),
             static_cast<int>(kExitNoProgress), static_cast<int>(kExitTooFewWorkers),
             static_cast<int>(kExitNoServerDevice), static_cast<int>(kExitCommandFailed),
             static_cast<int>(kExitInterrupted))
      << "  else  the first failing worker's exit code, or 128 + the signal that killed it\n";
  return out.str();
}

}  // namespace dt::launcher
