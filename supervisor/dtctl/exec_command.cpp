#include <algorithm>
#include <array>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_future.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/files/ranges.h"
#include "core/protocol/exit_code.h"
#include "io/asio.h"
#include "io/line_prefixer.h"
#include "io/log.h"
#include "io/stop_signals.h"
#include "io/task_group.h"
#include "launcher/reach/host_command.h"
#include "launcher/reach/host_ways.h"
#include "launcher/shell_word.h"
#include "supervisor/dtctl/commands.h"
#include "supervisor/dtctl/hosts_choice.h"

namespace dt::supervisor {
namespace {

constexpr const char* kExecUsage =
    R"(Runs COMMAND on all hosts of the folder's job, or on those of -H and -w. One
word is text for /bin/sh there; several are a command and its arguments, each as
it is.
)";
constexpr const char* kExecMore = R"(
Exit codes: 0 if the command ended with 0 on all hosts; else the largest code;
65 if a host was not reached; 124 where --timeout ended it.
)";

struct ExecOptions {
  std::string job_dir;
  std::uint32_t parallel = 64;
  Duration timeout{};
  bool folds = false;
  bool json = false;
  std::string input;
};

io::Flags exec_flags(ExecOptions& options, HostsChoice& choice) {
  // clang-format off
  io::Flags flags = {{"Command", {
      {.name = "parallel", .value = "N", .to = &options.parallel, .least = 1, .most = 4096,
       .help = "on at most so many hosts at a time ({})"},
      {.name = "timeout", .value = "TIME", .to = &options.timeout,
       .help = "ends the command on a host after so long; 30, 500ms, 10m"},
      {.name = "fold", .letter = 'b', .to = &options.folds,
       .help = "print equal outputs once, at the end"},
      {.name = "json", .to = &options.json, .help = "an object per host, when it has ended"},
      {.name = "input", .value = "FILE", .to = &options.input,
       .help = "the command's stdin on each host; without, /dev/null"},
  }}, ctl::common_flags(options.job_dir)};
  // clang-format on
  for (io::FlagGroup& group : hosts_flags(choice)) flags.push_back(std::move(group));
  return flags;
}

/// One word is a shell's text; of several each stays what it is.
std::string command_text(const io::Words& words) {
  if (words.size() == 1) return words.front();
  std::string text;
  for (const std::string& word : words)
    text += (text.empty() ? "" : " ") + launcher::shell_word(word);
  return text;
}

Result<std::shared_ptr<const std::string>> read_input(const std::string& path) {
  if (path.empty()) return std::shared_ptr<const std::string>();
  constexpr std::uintmax_t kLargest = std::uintmax_t{256} << 20;
  std::ifstream file(path, std::ios::binary);
  std::error_code ec;
  if (!file || std::filesystem::is_directory(path, ec))
    return fail(ErrorKind::kInvalid, "--input {}: it cannot be read", path);
  auto text = std::make_shared<std::string>();
  for (char c; text->size() <= kLargest && file.get(c);) text->push_back(c);
  if (text->size() > kLargest)
    return fail(ErrorKind::kInvalid, "--input {}: larger than 256 MiB: copy it to the hosts", path);
  return text;
}

/// Prints to stdout and stderr at once, or at the end. One thread.
class ExecOutput {
 public:
  virtual ~ExecOutput() = default;
  virtual void take(const Host& host, bool is_stderr, std::string_view bytes) = 0;
  /// No more comes from the host.
  virtual void end(const Host& host, const launcher::HostEnd& how) = 0;
  /// No more comes from any.
  virtual void finish() {}
};

/// How much of a host's output waits for its end; what is beyond it is left out, with a remark.
constexpr std::size_t kMostKept = std::size_t{16} << 20;

/// Whole, so that no line of the other stream comes into the middle of one.
void print(std::FILE* file, const std::string& text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

/// Each line as it comes, with "[host] " before it, on stdout or stderr as on the host.
class Lines final : public ExecOutput {
 public:
  void take(const Host& host, bool is_stderr, std::string_view bytes) override {
    print(is_stderr ? stderr : stdout, of(host)[is_stderr].feed(bytes));
  }
  void end(const Host& host, const launcher::HostEnd&) override {
    print(stdout, of(host)[0].finish());
    print(stderr, of(host)[1].finish());
    streams_.erase(host);
  }

 private:
  using Streams = std::array<io::LinePrefixer, 2>;  ///< stdout, stderr.
  Streams& of(const Host& host) {
    if (const auto at = streams_.find(host); at != streams_.end()) return at->second;
    const io::LinePrefixer lines(fmt::format("[{}] ", host));
    return streams_.emplace(host, Streams{lines, lines}).first->second;
  }
  std::map<Host, Streams> streams_;
};

/// Output that waits for its end, up to kMostKept.
class Kept {
 public:
  void add(std::string_view bytes) {
    const std::size_t room = kMostKept - text_.size();
    text_ += bytes.substr(0, room);
    left_out_ += bytes.size() - std::min(room, bytes.size());
  }
  [[nodiscard]] std::string text() const {
    if (left_out_ == 0) return text_;
    return fmt::format("{}\n({} bytes more were left out)\n", text_, left_out_);
  }

 private:
  std::string text_;
  std::size_t left_out_ = 0;
};

/// At the end, on stdout: hosts with the same output share its lines: "[h[1-62]] (62): ok".
class Folded final : public ExecOutput {
 public:
  void take(const Host& host, bool is_stderr, std::string_view bytes) override {
    Streams& streams = running_[host];
    streams.kept.add((is_stderr ? streams.err : streams.out).feed(bytes));
  }
  void end(const Host& host, const launcher::HostEnd&) override {
    Streams& streams = running_[host];
    streams.kept.add(streams.out.finish());
    streams.kept.add(streams.err.finish());
    if (std::string text = streams.kept.text(); !text.empty())
      groups_[std::move(text)].push_back(host);
    running_.erase(host);
  }
  void finish() override {
    // The largest group is what is usual; those that follow are news.
    std::vector<const Group*> order;
    for (const Group& group : groups_) order.push_back(&group);
    std::ranges::stable_sort(order, std::ranges::greater(),
                             [](const Group* group) { return group->second.size(); });
    for (const Group* group : order) {
      io::LinePrefixer lines(
          fmt::format("[{}] ({}): ", in_few_words(group->second), group->second.size()));
      print(stdout, lines.feed(group->first) + lines.finish());
    }
  }

 private:
  using Group = std::pair<const std::string, std::vector<Host>>;
  struct Streams {
    io::LinePrefixer out{""};
    io::LinePrefixer err{""};
    Kept kept;
  };
  std::map<Host, Streams> running_;
  std::map<std::string, std::vector<Host>> groups_;
};

/// An object a line on stdout, when a host's command ends: host, exit_code or error, stdout,
/// stderr.
class Json final : public ExecOutput {
 public:
  void take(const Host& host, bool is_stderr, std::string_view bytes) override {
    running_[host][is_stderr].add(bytes);
  }
  void end(const Host& host, const launcher::HostEnd& how) override {
    nlohmann::ordered_json line{{"host", to_string(host)}};
    if (how.exit_code) line["exit_code"] = *how.exit_code;
    if (!how.why.empty()) line["error"] = how.why;
    if (how.is_late) line["late"] = true;
    line["stdout"] = running_[host][0].text();
    line["stderr"] = running_[host][1].text();
    running_.erase(host);
    // Other characters than ASCII as escapes: no terminal obeys them.
    print(stdout,
          line.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }

 private:
  std::map<Host, std::array<Kept, 2>> running_;  ///< stdout, stderr.
};

std::unique_ptr<ExecOutput> make_output(const ExecOptions& options) {
  if (options.json) return std::make_unique<Json>();
  if (options.folds) return std::make_unique<Folded>();
  return std::make_unique<Lines>();
}

/// What became of the command on all hosts.
class ExecSummary {
 public:
  void end(const Host& host, const launcher::HostEnd& how) {
    ++hosts_;
    if (!how.exit_code || !how.why.empty()) unreached_.push_back(how.why);
    if (!how.exit_code) return;
    by_code_[*how.exit_code].push_back(host);
    if (how.is_late) late_.push_back(host);
  }

  /// 0 if all are, 65 if a host was not reached, else the largest exit code.
  [[nodiscard]] int exit_code() const {
    if (!unreached_.empty()) return kExitUnreachable;
    return by_code_.empty() ? kExitOk : by_code_.rbegin()->first;
  }

  /// Lines for people about all that is not 0; empty if nothing is.
  [[nodiscard]] std::string text() const {
    std::string lines;
    for (const auto& [code, hosts] : by_code_)
      if (code != 0)
        lines += fmt::format("dtctl: exit code {} on {} of {} hosts: {}\n", code, hosts.size(),
                             hosts_, in_few_words(hosts));
    if (!late_.empty())
      lines += fmt::format("dtctl: ended after --timeout: {}\n", in_few_words(late_));
    if (!unreached_.empty())
      lines +=
          fmt::format("dtctl: {} of {} hosts not reached, or lost:\n", unreached_.size(), hosts_);
    for (const std::string& why : unreached_) lines += fmt::format("  {}\n", io::printable(why));
    return lines;
  }

 private:
  std::size_t hosts_ = 0;
  std::map<int, std::vector<Host>> by_code_;
  std::vector<Host> late_;
  std::vector<std::string> unreached_;
};

/// One command on all hosts.
class ExecRound {
 public:
  ExecRound(io::asio::io_context& context, const ChosenHosts& chosen, launcher::HostCommand command,
            const ExecOptions& options)
      : context_(context),
        hosts_(chosen.hosts),
        ways_(launcher::make_ways(context, chosen.spec, log_)),
        commands_(context.get_executor(), std::move(command), options.parallel),
        output_(make_output(options)),
        tasks_(context.get_executor()),
        signals_(context),
        patience_(context) {
    io::add_stop_signals(signals_);
  }

  int run() {
    for (const Host& host : hosts_) tasks_.spawn(run_on(host));
    wait_for_signal();
    auto finished = io::asio::co_spawn(context_, finish(), io::asio::use_future);
    context_.run();
    finished.get();
    output_->finish();
    std::fputs(summary_.text().c_str(), stderr);
    if (signal_ == 0) return summary_.exit_code();
    fmt::print(stderr, "dtctl: interrupted: the command was ended on the hosts\n");
    return 128 + signal_;
  }

 private:
  io::awaitable<void> run_on(Host host) {
    launcher::Exec* exec = ways_->exec(host);
    const auto take = [this, host](bool is_stderr, std::string_view bytes) {
      output_->take(host, is_stderr, bytes);
    };
    auto ran = commands_.run(*exec, host, take);
    const launcher::HostEnd end = co_await std::move(ran);
    output_->end(host, end);
    summary_.end(host, end);
  }

  io::awaitable<void> finish() {
    co_await tasks_.join();
    context_.stop();
  }

  /// The first one ends the commands and waits for their ends; the second one does not wait.
  void wait_for_signal() {
    signals_.async_wait([this](const boost::system::error_code& ec, int signal) {
      if (ec) return;
      if (!orders_.is_new(std::chrono::steady_clock::now())) return wait_for_signal();
      const bool is_first = signal_ == 0;
      signal_ = signal;
      if (!is_first) return tasks_.cancel();
      commands_.end();
      patience_.expires_after(launcher::kEndPatience);
      patience_.async_wait([this](const boost::system::error_code& late) {
        if (!late) tasks_.cancel();
      });
      wait_for_signal();
    });
  }

  io::asio::io_context& context_;
  io::FdLog log_{STDERR_FILENO};
  std::vector<Host> hosts_;
  std::unique_ptr<launcher::Backend> ways_;
  launcher::HostCommands commands_;
  std::unique_ptr<ExecOutput> output_;
  ExecSummary summary_;
  io::TaskGroup tasks_;
  io::asio::signal_set signals_;
  io::StopOrders orders_;
  io::asio::steady_timer patience_;
  int signal_ = 0;
};

}  // namespace

int exec_main(io::Program program, const std::string& job_dir, const io::Words& words) {
  program.usage += kExecUsage;
  program.more = kExecMore;
  const auto dashes = std::ranges::find(words, "--");
  const io::Words before(words.begin(), dashes);
  const io::Words command(dashes == words.end() ? dashes : dashes + 1, words.end());
  ExecOptions options;
  options.job_dir = job_dir;
  const auto flags_of = [&](HostsChoice& choice) { return exec_flags(options, choice); };
  HostsChoice scratch;
  const io::Flags first_flags = flags_of(scratch);
  const auto given = io::parse(program, first_flags, before);
  if (!given && dashes == words.end())
    return io::refuse(program,
                      {given.error().kind, given.error().message + "; the command comes behind --: "
                                                                   "exec [OPTION...] -- COMMAND"});
  if (!given) return io::refuse(program, given.error());
  if (const auto text = io::answer(program, first_flags, *given))
    return std::fputs(text->c_str(), stdout) < 0;
  const auto refused = [&](const Error& why) { return io::refuse(program, why); };
  if (command.empty())
    return refused({ErrorKind::kInvalid, "the command is missing: exec [OPTION...] -- COMMAND"});
  const auto chosen = choose_hosts(absolute_folder(options.job_dir), program, before, flags_of);
  if (!chosen) return refused(chosen.error());
  auto input = read_input(options.input);
  if (!input) return refused(input.error());
  io::asio::io_context context(1);
  ExecRound round(context, *chosen, {command_text(command), std::move(*input), options.timeout},
                  options);
  return round.run();
}

}  // namespace dt::supervisor
