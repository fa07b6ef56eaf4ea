#include "supervisor/fleet/program_provider.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "io/last_words.h"
#include "launcher/backend/child_stream.h"

namespace dt::supervisor {

using io::awaitable;
using namespace std::chrono_literals;

namespace {

constexpr Duration kLongestAnswer = 60s;
constexpr Duration kUntilRightsAreLookedAt = 300s;
constexpr Duration kUntilItIsBack = 60s;

}  // namespace

ProgramProvider::ProgramProvider(io::asio::any_io_executor executor, std::string words,
                                 std::string folder, std::string job)
    : executor_(executor),
      words_(std::move(words)),
      folder_(std::move(folder)),
      job_(std::move(job)),
      readers_(std::move(executor)) {}

std::string ProgramProvider::name() const { return hello_.name.empty() ? words_ : hello_.name; }

Duration ProgramProvider::longest_pause() const { return patience_.value_or(hello_.every); }

std::string ProgramProvider::text(const std::vector<Machine>& machines) const {
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
  out += listing_.said.empty() ? "" : ": " + listing_.said;
  for (const auto& [id, why] : later_) out += "; " + why;
  return out;
}

awaitable<Result<std::vector<Machine>>> ProgramProvider::list(std::vector<Machine>) {
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

awaitable<Result<std::string>> ProgramProvider::act(FleetAction action, Machine machine,
                                                    HolderOrder) {
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

awaitable<Result<std::string>> ProgramProvider::grow(std::uint64_t from, std::uint64_t to) {
  std::string request = provider_lines::grow(++last_, from, to);
  const auto answer = co_await ask(std::move(request));
  co_return answer.map([](const std::string& line) { return provider_lines::sentence_of(line); });
}

awaitable<Result<void>> ProgramProvider::start() {
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

awaitable<void> ProgramProvider::read_lines(std::shared_ptr<Program> program) {
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

awaitable<Result<std::string>> ProgramProvider::ask(std::string request) {
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

awaitable<Result<std::string>> ProgramProvider::answer_of(std::shared_ptr<Program> program,
                                                          std::string request) {
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

void ProgramProvider::drop() {
  if (program_) program_->stream->close();
  program_.reset();
}

awaitable<void> ProgramProvider::stop() {
  drop();
  co_await readers_.join();
}

}  // namespace dt::supervisor
