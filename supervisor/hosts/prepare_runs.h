/// What a host passes before its first worker: the newcomers' gate, then the data check, which runs
/// --prepare-data or waits for the success file that another program makes (--require-prepared).
/// Each ends in PrepareEnded, or is forgotten with its host.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "supervisor/context/supervisor_context.h"

namespace dt::supervisor {

class Gate;
class HostLinks;
class ProcessOutput;

/// One thread. Everything given outlives it.
class PrepareRuns {
 public:
  PrepareRuns(SupervisorContext& context, HostLinks& links, ProcessOutput& output, Gate& gate)
      : context_(context), links_(links), output_(output), gate_(gate) {}

  /// The id of the next process of this kind; take_id() takes it. No other term uses it.
  [[nodiscard]] std::uint32_t next_id() const {
    return (static_cast<std::uint32_t>(context_.term.value) << 16) + taken_;
  }
  void take_id() { ++taken_; }

  io::awaitable<void> run(Host host);
  /// Nobody waits any more for the checks that run there.
  void forget(const Host& host);
  /// An agent is attached that runs these processes: a check may have got lost.
  void admitted(const Host& host, const std::vector<ProcessReport>& there);
  /// Runs, and is waited for.
  [[nodiscard]] bool knows(ProcessId process) const { return runs_.count(process.id) > 0; }
  void output(ProcessId process, std::string_view bytes);
  void ended(ProcessId process, ExitStatus status, std::string why, bool never_ran);

 private:
  struct Run {
    Host host;
    std::string tail;  ///< Last output, for the failure's reason.
    std::optional<ExitStatus> exit;
    std::string failed;
    bool is_started = false;  ///< The process; before that the host is in the gate.
    bool forgotten = false;
    std::unique_ptr<io::asio::steady_timer> ended;
  };

  /// The gate; false: the run has ended there.
  io::awaitable<bool> enter(std::uint32_t id);
  /// Runs --prepare-data.
  io::awaitable<void> prepare(std::uint32_t id, std::string mark);
  /// Waits for the success file; base hosts are trusted.
  io::awaitable<void> wait_for(Host host, std::string mark);
  void start(const Host& host, ProcessId process);
  /// What the check's end means; makes the success file.
  io::awaitable<PrepareEnded> result_of(Host host, std::uint32_t id, std::string mark,
                                        bool is_timeout);

  SupervisorContext& context_;
  HostLinks& links_;
  ProcessOutput& output_;
  Gate& gate_;
  std::map<std::uint32_t, Run> runs_;
  std::set<Host> waits_noted_;
  std::uint32_t taken_ = 0;  ///< Ids.
};

}  // namespace dt::supervisor
