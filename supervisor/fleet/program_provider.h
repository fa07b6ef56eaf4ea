/// A provider that is a program of its own, in any language: it answers dtfleet's requests line by
/// line (core/fleet/provider_lines.h). It is started at the first list, and again at the next one
/// after it ended, did not answer or said what it should not.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "core/fleet/provider_lines.h"
#include "io/asio.h"
#include "io/task_group.h"
#include "launcher/backend/exec.h"
#include "supervisor/fleet/provider.h"

namespace dt::supervisor {

class ProgramProvider : public Provider {
 public:
  /// /bin/sh runs `words` in `folder`.
  ProgramProvider(io::asio::any_io_executor executor, std::string words, std::string folder,
                  std::string job);

  [[nodiscard]] std::string name() const override;
  [[nodiscard]] FleetRules rules() const override {
    return {.returns_at_end = hello_.gives_back_at_end};
  }
  [[nodiscard]] Duration longest_pause() const override;
  [[nodiscard]] std::string text(const std::vector<Machine>& machines) const override;
  [[nodiscard]] Hints hints() const override { return is_hinted_ ? Hints::kNew : Hints::kNone; }
  io::awaitable<Result<std::vector<Machine>>> list(std::vector<Machine> known) override;
  io::awaitable<Result<std::string>> act(FleetAction action, Machine machine,
                                         HolderOrder order) override;
  [[nodiscard]] std::optional<std::uint64_t> wished() const override {
    return hello_.can_grow ? listing_.wished : std::nullopt;
  }
  [[nodiscard]] bool can_let_go() const override { return hello_.can_let_go; }
  io::awaitable<Result<std::string>> grow(std::uint64_t from, std::uint64_t to) override;
  io::awaitable<void> stop() override;

 private:
  struct Program {
    explicit Program(const io::asio::any_io_executor& executor) : arrived(executor) {}
    std::unique_ptr<launcher::ExecStream> stream;
    std::deque<std::string> lines;   ///< That are no events.
    std::string trouble;             ///< Why no more lines come; empty: they may.
    io::asio::steady_timer arrived;  ///< Cancelled when one of both has changed.
  };

  io::awaitable<Result<void>> start();
  io::awaitable<void> read_lines(std::shared_ptr<Program> program);
  /// The answer to a request; without one, or with one that is none, the program is stopped.
  io::awaitable<Result<std::string>> ask(std::string request);
  io::awaitable<Result<std::string>> answer_of(std::shared_ptr<Program> program,
                                               std::string request);
  void drop();

  io::asio::any_io_executor executor_;
  std::string words_;
  std::string folder_;
  std::string job_;
  io::TaskGroup readers_;
  std::shared_ptr<Program> program_;
  provider_lines::Hello hello_;
  provider_lines::Listing listing_;           ///< The last one, without its machines.
  std::map<std::string, std::string> later_;  ///< By id: why a machine cannot be let go yet.
  std::uint64_t last_ = 0;                    ///< Number of the last request.
  bool is_hinted_ = false;
  std::optional<Duration> patience_;  ///< After a request that could not be done.
};

}  // namespace dt::supervisor
