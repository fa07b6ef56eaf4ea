#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <utility>

#include "core/fleet/provider_lines.h"
#include "io/clock.h"
#include "io/last_words.h"
#include "io/task_group.h"
#include "launcher/backend/child_stream.h"
#include "supervisor/fleet/provider.h"

namespace dt::supervisor {

using io::awaitable;
using namespace std::chrono_literals;

namespace {

constexpr Duration kLongestAnswer = 60s;
constexpr Duration kUntilRightsAreLookedAt = 300s;
constexpr Duration kUntilItIsBack = 60s;

/// The program is started at the first list, and again at the next one after it ended, did not
/// answer or said what it should not.
class ProgramProvider final : public Provider {
 public:
  ProgramProvider(io::asio::any_io_executor executor, std::string words, std::string folder,
                  std::string job)
      : executor_(executor),
        words_(std::move(words)),
        folder_(std::move(folder)),
        job_(std::move(job)),
        readers_(std::move(executor)) {}

  [[nodiscard]] std::string name() const override {
    return hello_.name.empty() ? words_ : hello_.name;
  }
  [[nodiscard]] FleetRules rules() const override {
    return {.returns_at_end = hello_.gives_back_at_end};
  }
  [[nodiscard]] Duration longest_pause() const override { return patience_.value_or(hello_.every); }
  [[nodiscard]] Hints hints() const override { return is_hinted_ ? Hints::kNew : Hints::kNone; }
  [[nodiscard]] std::optional<std::uint64_t> wished() const override {
    return hello_.can_grow ? listing_.wished : std::nullopt;
  }
  [[nodiscard]] bool can_let_go() const override { return hello_.can_let_go; }

  [[nodiscard]] std::string text(const std::vector<Machine>& machines) const override {
    const auto of = [&](MachineState state) {
      return std::ranges::count(machines, state, &Machine::state);
    };
    std::string out;
    if (listing_.wished) out = fmt::format("{} asked for, ", *listing_.wished);
    out += fmt::format("{} here", of(MachineState::kReady));
    if (const auto pending = of(MachineState::kPending); pending > 0)
      out += fmt::format(", {} pending{}", pending, reasons_of(machines));
    if (const auto going = of(MachineState::kEnding); going > 0)
      out += fmt::format(", {} going", going);
    if (const auto hours = machine_hours(machines, static_cast<double>(io::wall_now()) / 1e9))
      out += fmt::format(", {:.1f} machine-hours since they came", *hours);
    out += listing_.said.empty() ? "" : ": " + listing_.said;
    for (const auto& [id, why] : later_) out += "; " + why;
    return out;
  }

  awaitable<Result<std::vector<Machine>>> list(std::vector<Machine>) override {
    if (!program_)
      if (auto started = co_await start(); !started) co_return tl::unexpected(started.error());
    is_hinted_ = false;
    std::string request = provider_lines::list(++last_);
    const auto answer = co_await ask(std::move(request));
    if (!answer) co_return tl::unexpected(answer.error());
    auto listing = provider_lines::parse_listing(*answer);
    if (!listing) {
      drop();
      co_return fail(ErrorKind::kProtocol, "{}: {}", name(), listing.error().message);
    }
    listing_ = std::move(*listing);
    std::erase_if(later_, [this](const auto& entry) {
      const auto at = std::ranges::find(listing_.machines, entry.first, &Machine::id);
      return at == listing_.machines.end() || at->state == MachineState::kEnding;
    });
    co_return std::exchange(listing_.machines, {});
  }

  awaitable<Result<std::string>> act(FleetAction action, Machine machine, HolderOrder) override {
    namespace lines = provider_lines;
    std::string request;
    if (const auto* set = std::get_if<SetMark>(&action); set && hello_.has_marks)
      request = lines::mark(++last_, machine, set->mark);
    const auto* go = std::get_if<LetGo>(&action);
    if (go && hello_.can_let_go) request = lines::let_go(++last_, go->id, go->why);
    if (const auto* left = std::get_if<Confirm>(&action); left && hello_.can_confirm)
      request = lines::confirm(++last_, left->id);
    if (request.empty()) co_return std::string();
    const auto answer = co_await ask(std::move(request));
    if (!answer || !go) co_return answer.map([](const std::string&) { return std::string(); });
    const std::string later = lines::sentence_of(*answer);
    if (later.empty()) {
      later_.erase(go->id);
      co_return fmt::format("{} gets {} back: {}", name(), machine.host, go->why);
    }
    later_[go->id] = later;
    co_return fmt::format("{}: {}", name(), later);
  }

  awaitable<Result<std::string>> grow(std::uint64_t from, std::uint64_t to) override {
    std::string request = provider_lines::grow(++last_, from, to);
    const auto answer = co_await ask(std::move(request));
    co_return answer.map([](const std::string& line) { return provider_lines::sentence_of(line); });
  }

  awaitable<void> stop() override {
    drop();
    co_await readers_.join();
  }

 private:
  struct Program {
    explicit Program(const io::asio::any_io_executor& executor) : arrived(executor) {}
    std::unique_ptr<launcher::ExecStream> stream;
    std::deque<std::string> lines;   ///< That are no events.
    std::string trouble;             ///< Why no more lines come; empty: they may.
    io::asio::steady_timer arrived;  ///< Cancelled when one of both has changed.
  };

  awaitable<Result<void>> start() {
    launcher::ChildProgram child;
    child.path = "/bin/sh";
    child.argv = {"sh", "-c", R"(cd -- "$1" && exec /bin/sh -c "$2")", "sh", folder_, words_};
    auto stream = launcher::child_stream(executor_, child);
    if (!stream) co_return tl::unexpected(stream.error());
    program_ = std::make_shared<Program>(executor_);
    program_->stream = std::move(*stream);
    readers_.spawn(read_lines(program_));
    std::string request = provider_lines::hello(++last_, job_);
    const auto answer = co_await ask(std::move(request));
    if (!answer) co_return tl::unexpected(answer.error());
    auto hello = provider_lines::parse_hello(*answer);
    if (!hello) {
      drop();
      co_return fail(ErrorKind::kProtocol, "{}: {}", words_, hello.error().message);
    }
    hello_ = std::move(*hello);
    co_return Result<void>();
  }

  awaitable<void> read_lines(std::shared_ptr<Program> program) {
    std::array<char, 65536> piece{};
    std::string line;
    while (program->trouble.empty()) {
      const auto n = co_await program->stream->read(piece);
      if (!n || *n == 0) {
        const std::string words = io::on_one_line(program->stream->stderr_tail());
        program->trouble =
            fmt::format("it has ended with exit code {}{}", program->stream->exit_code(),
                        words.empty() ? "" : ": " + words);
        break;
      }
      for (const char c : std::string_view(piece.data(), *n)) {
        if (c != '\n') {
          line += c;
          continue;
        }
        const auto said = provider_lines::parse_line(line);
        if (said && said->is_changed)
          is_hinted_ = true;
        else
          program->lines.push_back(std::move(line));
        line.clear();
      }
      if (line.size() > provider_lines::kLongestLine || program->lines.size() > 1)
        program->trouble = "it says more than it was asked, or a line of more than 4 MiB";
      program->arrived.cancel();
    }
    program->arrived.cancel();
  }

  /// The answer to a request; without one, or with one that is none, the program is stopped.
  awaitable<Result<std::string>> ask(std::string request) {
    if (!program_) co_return fail(ErrorKind::kUnavailable, "{} does not run", name());
    const std::uint64_t n = last_;
    auto answer = co_await answer_of(program_, std::move(request));
    const auto said = answer ? provider_lines::parse_line(*answer) : Result<provider_lines::Line>();
    if (answer && !said) answer = tl::unexpected(said.error());
    if (answer && said->n != n)
      answer = fail(ErrorKind::kProtocol, "it answers request {}, and was asked {}", said->n, n);
    if (!answer) {
      drop();
      patience_ = kUntilItIsBack;
      co_return fail(answer.error().kind, "{}: {}", words_, answer.error().message);
    }
    patience_.reset();
    if (said->refusal)
      patience_ = said->refusal->kind == provider_lines::Trouble::kDenied ? kUntilRightsAreLookedAt
                                                                          : kUntilItIsBack;
    if (said->refusal) co_return fail(ErrorKind::kDenied, "{}: {}", name(), said->refusal->text);
    co_return answer;
  }

  awaitable<Result<std::string>> answer_of(std::shared_ptr<Program> program, std::string request) {
    const auto until = std::chrono::steady_clock::now() + kLongestAnswer;
    // A program that ends says why: that is read below.
    (void)co_await program->stream->write(request);
    while (program->lines.empty()) {
      if (!program->trouble.empty()) co_return fail(ErrorKind::kProtocol, "{}", program->trouble);
      if (std::chrono::steady_clock::now() >= until)
        co_return fail(ErrorKind::kTimeout, "no answer within {:.0f} s", seconds(kLongestAnswer));
      program->arrived.expires_at(until);
      co_await program->arrived.async_wait(io::tok);
    }
    std::string line = std::move(program->lines.front());
    program->lines.pop_front();
    co_return line;
  }

  void drop() {
    if (program_) program_->stream->close();
    program_.reset();
  }

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

}  // namespace

std::unique_ptr<Provider> program_provider(io::asio::any_io_executor executor, std::string words,
                                           std::string folder, std::string job) {
  return std::make_unique<ProgramProvider>(std::move(executor), std::move(words), std::move(folder),
                                           std::move(job));
}

}  // namespace dt::supervisor
