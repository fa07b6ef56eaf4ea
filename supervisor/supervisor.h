/// The supervisor: the only loop of the job. It turns what happens (agents, host_worker, requests,
/// time) into events of the job machine (core/job/job.h) and carries out its effects. It decides
/// nothing itself.
///
///     JobFiles          journal, lock, and what the job writes to the shared volume
///     JobHosts          all that is done and heard on its hosts
///     Decisions         events in, effects out     HostWorkerEditor  dtctl add and remove
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "io/awaitable.h"
#include "io/job/spec.h"

namespace boost::asio {
class io_context;
}
namespace dt::launcher {
class Backend;
}

namespace dt::supervisor {

struct SupervisorOptions {
  io::JobSpec spec;
  std::uint64_t journal_limit = std::uint64_t{64} << 20;  ///< Bytes; a longer journal is cut.
  bool resume = false;  ///< Continue from the journal of an earlier supervisor.
  /// The folder is taken from a supervisor of which nothing can be seen from here.
  bool take_over = false;
  bool adopt = false;  ///< JobOptions::is_adopted
  /// A dtlaunch owns the job, or will: the job stops when that ends.
  bool owned = false;
  int ready_fd = -1;  ///< Gets "READY <control socket>\n" or "ERROR <exit code> <sentence>\n".
  std::vector<std::string> volume_helper;  ///< Program and arguments of the volume's helper.
  /// A foreground job is stopped if its dtlaunch has not connected to the console by then.
  Duration owner_comes = std::chrono::seconds(30);
  /// Between lines that show how the job goes on, at first; after ten of them ten times that.
  Duration heartbeat = std::chrono::minutes(1);
  /// Brings the working folder to a host before anything starts there; empty: nothing to bring.
  std::function<io::awaitable<Result<void>>(Host)> sync;
};

/// One thread, that of its context.
class Supervisor {
 public:
  virtual ~Supervisor() = default;

  /// Runs the job to its end; the job's exit code. Everything it opened is closed afterwards.
  virtual io::awaitable<int> run() = 0;
  /// Ends the job, as Ctrl-C does: processes have --stop-timeout to end. Once is enough.
  virtual void stop(std::string why) = 0;
  /// The same, or in the middle of it: processes are killed at once.
  virtual void kill(std::string why) = 0;
};

[[nodiscard]] std::unique_ptr<Supervisor> make_supervisor(
    boost::asio::io_context& context, SupervisorOptions options,
    std::unique_ptr<launcher::Backend> backend);

}  // namespace dt::supervisor
