#include "launcher/reach/host_command.h"

#include <algorithm>

#include "core/base/number.h"
#include "io/at_end.h"
#include "io/within.h"
#include "launcher/shell_word.h"

namespace dt::launcher {
namespace {

using io::awaitable;

/// Before the command's stdout and stderr: what start files of the shell print comes earlier.
constexpr std::string_view kBegun = "dtctl:begun";
/// After the command's stdout, with its exit code and the end of the line. A starter may end with 0
/// although the command has not: srun does so when the node is lost. Text has no such byte.
constexpr std::string_view kEnded = "\001dtctl:ended ";
/// From the shell's start to kBegun.
constexpr Duration kStart = std::chrono::seconds(20);

/// Where stdin carries the command's input, it is stored before anything else: what comes after it
/// is the end alone.
std::string take_input(const HostCommand& command) {
  if (!command.input) return {};
  return fmt::format(
      "umask 077; f=$(mktemp) || exit 1; exec 4<\"$f\" 5>\"$f\"; rm -f \"$f\"; "
      "head -c {0} <&3 >&5 || exit 1; exec 5>&-; "
      "[ \"$(wc -c </proc/self/fd/4)\" -eq {0} ] || exit 1; ",
      command.input->size());
}

/// stderr from kBegun on. What holds no kBegun at all is passed on at the end: a starter may have
/// merged both streams.
class Errors {
 public:
  explicit Errors(TakeOutput take) : take_(std::move(take)) {}
  void feed(std::string_view bytes) {
    if (has_begun_) return take_(true, bytes);
    early_ += bytes;
    const std::string mark = fmt::format("{}\n", kBegun);
    const std::size_t at = early_.find(mark);
    if (at == std::string::npos && early_.size() < kMostEarly) return;
    begin(at == std::string::npos ? 0 : at + mark.size());
  }
  void finish() {
    if (!has_begun_) begin(0);
  }

 private:
  void begin(std::size_t at) {
    has_begun_ = true;
    if (at < early_.size()) take_(true, std::string_view(early_).substr(at));
    early_.clear();
  }
  static constexpr std::size_t kMostEarly = std::size_t{64} << 10;
  TakeOutput take_;
  std::string early_;
  bool has_begun_ = false;
};

/// stdout without kEnded.
class Output {
 public:
  explicit Output(TakeOutput take) : take_(std::move(take)) {}
  void feed(std::string_view bytes) {
    held_ += bytes;
    std::size_t done = 0;
    std::size_t mark = held_.find(kEnded);
    while (mark != std::string::npos) {
      const std::size_t begin = mark + kEnded.size();
      const std::string digits = held_.substr(begin, kMostDigits + 1);
      const std::size_t end = digits.find('\n');
      if (end == std::string::npos && digits.size() <= kMostDigits) break;
      const auto code =
          end == std::string::npos ? std::nullopt : parse_number<int>(digits.substr(0, end));
      if (code) code_ = *code;
      pass_on(done, code ? mark : begin);
      done = code ? begin + end + 1 : begin;
      mark = held_.find(kEnded, done);
    }
    // What may become a mark is held back.
    const std::size_t last = std::min(mark, held_.rfind(kEnded.front()));
    const bool is_held = last != std::string::npos && last >= done &&
                         (last == mark || kEnded.starts_with(held_.substr(last)));
    pass_on(done, is_held ? last : held_.size());
    held_.erase(0, is_held ? last : held_.size());
  }
  void finish() { pass_on(0, held_.size()); }
  /// The command's exit code, if its end was seen.
  [[nodiscard]] const std::optional<int>& code() const { return code_; }

 private:
  void pass_on(std::size_t from, std::size_t to) {
    if (from < to) take_(false, std::string_view(held_).substr(from, to - from));
  }
  static constexpr std::size_t kMostDigits = 3;
  TakeOutput take_;
  std::string held_;  ///< Empty, or the beginning of what may be a mark.
  std::optional<int> code_;
};

awaitable<Result<int>> read_to_end(ExecStream& stream, Output& output) {
  std::string piece(std::size_t{256} << 10, '\0');
  for (;;) {
    auto n = co_await stream.read(piece);
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) break;
    output.feed(std::string_view(piece).substr(0, *n));
  }
  output.finish();
  if (output.code()) co_return *output.code();
  if (stream.exit_code() < 0) co_return tl::unexpected(stream.no_exit_code());
  if (stream.exit_code() == 0)
    co_return fail(ErrorKind::kClosed,
                   "the connection ended before the command did, with exit code 0: was the host "
                   "lost?");
  co_return stream.exit_code();
}

/// The same for at most `limit`; nothing when it is over.
awaitable<std::optional<Result<int>>> read_for(Duration limit, ExecStream& stream, Output& output) {
  using namespace io::asio::experimental::awaitable_operators;
  io::asio::steady_timer timer(co_await io::asio::this_coro::executor, limit);
  auto race = read_to_end(stream, output) || timer.async_wait(io::tok);
  auto first = co_await std::move(race);
  if (first.index() == 0) co_return std::move(std::get<0>(first));
  co_return std::nullopt;
}

/// And the end of a line: see lines.h.
awaitable<Result<void>> write_input(ExecStream& stream, std::shared_ptr<const std::string> input) {
  auto sent = co_await stream.write(*input);
  if (sent) sent = co_await stream.write("\n");
  co_return sent;
}

HostEnd end_of(const Host& host, const Result<int>& code) {
  if (code) return {*code, {}, false};
  return {std::nullopt, at_host(host, code.error().message), false};
}

}  // namespace

std::string host_command_script(const HostCommand& command) {
  // Only a caught signal is back at its default in the command; an ignored one would be ignored.
  const std::string script = fmt::format(
      "echo {0}; echo {0} >&2; exec 3<&0 </dev/null; {1}c=; trap c=143 TERM; "
      "{{ while read -r x <&3; do :; done; trap '' TERM; exec 3<&-; kill -TERM 0; "
      "for x in 1 2 3 4 5; do sleep 1; done; kill -KILL 0; }} >/dev/null 2>&1 {2}& "
      "w=$!; [ -n \"$c\" ] || {{ /bin/sh -c {3} 3<&- {4}; c=$?; }}; kill -KILL $w; "
      "printf '\\001{5}%s\\n' $c; exit $c",
      kBegun, take_input(command), command.input ? "4<&- " : "", shell_word(command.text),
      command.input ? "<&4 4<&-" : "", kEnded.substr(1));
  // The group is the command's alone: sshd and other starters make one, and setsid where one does
  // not. The fifth field of `stat` is the process group (proc(5)).
  return fmt::format(
      "read -r x x x x g x </proc/$$/stat; s={}; [ \"$g\" = $$ ] || exec setsid /bin/sh -c \"$s\"; "
      "eval \"$s\"",
      shell_word(script));
}

HostCommands::HostCommands(io::asio::any_io_executor executor, HostCommand command,
                           std::size_t parallel)
    : command_(std::move(command)),
      script_(host_command_script(command_)),
      window_(std::make_shared<io::Semaphore>(std::move(executor), parallel)) {}

awaitable<HostEnd> HostCommands::run(Exec& exec, Host host, TakeOutput take) {
  const auto turn = co_await window_->acquire();
  const HostEnd not_begun{std::nullopt, at_host(host, "not begun"), false};
  if (is_ending_) co_return not_begun;
  auto stream = co_await exec.open(host, script_);
  if (!stream) co_return end_of(host, tl::unexpected(stream.error()));
  if (is_ending_) co_return not_begun;
  ExecStream* const own = stream->get();
  running_.insert(own);  // end() finds it
  const io::AtEnd running([this, own] { running_.erase(own); });
  auto errors = std::make_shared<Errors>(take);
  (*stream)->on_stderr([errors](std::string_view bytes) { errors->feed(bytes); });
  auto ran = co_await run_on(**stream, host, std::move(take));
  errors->finish();
  co_return std::move(ran);
}

awaitable<HostEnd> HostCommands::run_on(ExecStream& stream, Host host, TakeOutput take) {
  auto begun = co_await io::within(kStart, read_answer(stream, std::string(kBegun), "the shell"),
                                   "no sign of the command's start");
  if (!begun) co_return end_of(host, tl::unexpected(begun.error()));
  Output output(std::move(take));
  if (!begun->rest.empty()) output.feed(begun->rest);
  // A host that cannot take the input gives the reason in its output.
  const bool has_limit = command_.timeout > Duration{};
  if (command_.input && has_limit)
    static_cast<void>(
        co_await io::within(command_.timeout, write_input(stream, command_.input), "its input"));
  else if (command_.input)
    static_cast<void>(co_await write_input(stream, command_.input));
  if (!has_limit) {
    const auto code = co_await read_to_end(stream, output);
    co_return end_of(host, code);
  }
  auto code = co_await read_for(command_.timeout, stream, output);
  if (code) co_return end_of(host, *code);
  stream.finish_writing();
  code = co_await read_for(kEndPatience, stream, output);
  HostEnd late{kExitLateCommand, {}, true};
  if (!code) late.why = at_host(host, "it did not end by KILL");
  co_return late;
}

void HostCommands::end() {
  is_ending_ = true;
  for (ExecStream* stream : running_) stream->finish_writing();
}

}  // namespace dt::launcher
