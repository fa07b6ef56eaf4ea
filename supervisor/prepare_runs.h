/// The data checks of hosts: runs --prepare-data, or waits for the success file that another
/// program makes (--require-prepared). Each ends in PrepareEnded, or is forgotten with its host.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "launcher/environment.h"
#include "supervisor/hosts/host_links.h"
#include "supervisor/shell.h"
#include "supervisor/volume/output.h"

namespace dt::supervisor {

/// `<job_dir>/prepare_data_success_<address>`
[[nodiscard]] std::string prepared_file(const std::string& job_dir, const std::string& address);

/// ": last words" for an error message: the last lines of a command's output on one line, at most
/// 300 bytes.
[[nodiscard]] std::string last_lines(std::string_view tail);

/// One thread. Everything given outlives it.
class PrepareRuns {
 public:
  using Facts = std::function<launcher::ProcessFacts(ProcessId, const Host&)>;

  PrepareRuns(Shell& shell, HostLinks& links, ProcessOutput& output, Facts facts)
      : shell_(shell), links_(links), output_(output), facts_(std::move(facts)) {}

  /// A term's checks have ids that no other term uses.
  void begin(Term term) { next_ = static_cast<std::uint32_t>(term.value) << 16; }
  /// The id of the next process of this kind; next_id() takes it.
  [[nodiscard]] std::uint32_t peek_id() const { return next_; }
  std::uint32_t next_id() { return next_++; }

  void run(const Host& host) { shell_.tasks.spawn(prepare(host)); }
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
    bool forgotten = false;
    std::unique_ptr<io::asio::steady_timer> ended;
  };

  io::awaitable<void> prepare(Host host);
  /// Waits for the success file; base hosts are trusted.
  io::awaitable<void> wait_for(Host host, std::string mark);
  void start(const Host& host, ProcessId process);
  /// What the check's end means; makes the success file.
  io::awaitable<PrepareEnded> result_of(Host host, std::uint32_t id, std::string mark,
                                        bool is_timeout);

  Shell& shell_;
  HostLinks& links_;
  ProcessOutput& output_;
  Facts facts_;
  std::map<std::uint32_t, Run> runs_;
  std::set<Host> waits_noted_;
  std::uint32_t next_ = 0;
};

}  // namespace dt::supervisor
