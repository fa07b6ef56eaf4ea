/// Who has the machines of a job's fleet: Slurm's queue, a script, a cloud by a program of its own.
/// A provider lists the machines and carries out actions on them. FleetMemory (core/fleet) decides
/// on the actions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"
#include "core/fleet/fleet_plan.h"
#include "core/launch/holders.h"
#include "io/asio.h"

namespace dt::supervisor {

/// One thread.
class Provider {
 public:
  virtual ~Provider() = default;

  [[nodiscard]] virtual std::string name() const = 0;  ///< In sentences: "Slurm".
  /// Of a program: as it says at its first list.
  [[nodiscard]] virtual FleetRules rules() const = 0;
  /// What was done with a machine is in the job's marks file (marks_file.h), too.
  [[nodiscard]] virtual bool needs_marks_file() const { return true; }
  /// The machine's line in host_worker.
  [[nodiscard]] virtual std::string line_of(const std::string& host) const { return host; }
  /// At most so long after a list the next one begins.
  [[nodiscard]] virtual Duration longest_pause() const = 0;

  /// What status says of them; empty: nothing.
  [[nodiscard]] virtual std::string text(const std::vector<Machine>& machines) const {
    return machines_for_people(machines);
  }

  /// Whether it says by itself that something has changed, and has since the last list.
  enum class Hints { kNever, kNone, kNew };
  [[nodiscard]] virtual Hints hints() const { return Hints::kNever; }

  /// Every machine of the job, or an error: then nothing is known. `known`: the marks file's.
  virtual io::awaitable<Result<std::vector<Machine>>> list(std::vector<Machine> known) = 0;
  /// Does SetMark, LetGo, Confirm or Replace, which names `machine`; a sentence about it for the
  /// job's events, or none. `order`: what a new machine has to know.
  virtual io::awaitable<Result<std::string>> act(FleetAction, Machine, HolderOrder) {
    co_return std::string();
  }
  /// How many machines were asked for, by the last list; nullopt: none can be asked for.
  [[nodiscard]] virtual std::optional<std::uint64_t> wished() const { return std::nullopt; }
  [[nodiscard]] virtual bool can_let_go() const { return false; }
  /// Asks for `to` machines in all, where wished() is `from`; where it is `to` it was done before.
  /// A sentence about it, or none. Only after wished().
  virtual io::awaitable<Result<std::string>> grow(std::uint64_t, std::uint64_t) {
    co_return std::string();
  }
  /// The job has ended, and its supervisor is no more: what must not outlive it is given back.
  virtual io::awaitable<Result<void>> give_all_back() { co_return Result<void>(); }
  /// Ends what it has begun; nothing is called afterwards.
  virtual io::awaitable<void> stop() { co_return; }
};

/// Slurm's holders (core/launch/holders.h): `dtctl grow` asks for them.
[[nodiscard]] std::unique_ptr<Provider> slurm_provider(std::string job);

/// A discovery script: it prints the hosts that there are (core/fleet/discovered_hosts.h), and the
/// job has workers on them. A host that two outputs in a row lack is left. The script gets no
/// request: nothing is asked for, and nothing is given back. /bin/sh runs `words` in `folder`; for
/// 10 s at most.
[[nodiscard]] std::unique_ptr<Provider> command_provider(std::string words, std::string folder);

/// A program in any language, which /bin/sh runs by `words` in `folder`: it answers dtfleet's
/// requests line by line (core/fleet/provider_lines.h).
[[nodiscard]] std::unique_ptr<Provider> program_provider(io::asio::any_io_executor executor,
                                                         std::string words, std::string folder,
                                                         std::string job);

}  // namespace dt::supervisor
