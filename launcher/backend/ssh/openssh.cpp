#include "launcher/backend/ssh/openssh.h"

#include "io/last_words.h"
#include "io/program_output.h"
#include "io/subprocess.h"
#include "io/within.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;
using io::awaitable;

constexpr std::size_t kMaxAnswer = std::size_t{1} << 20;
constexpr const char* kRemedy =
    "or write the block with Host, or with Match all, host, originalhost, user and localuser alone";

Error undecided_error(const SshHostConfig& from_files, const Error& error) {
  return {error.kind,
          fmt::format("{}: {}; repair that, {}", from_files.undecided, error.message, kRemedy)};
}

}  // namespace

OpenSsh::OpenSsh(asio::any_io_executor executor, std::size_t at_once, Duration deadline)
    : executor_(std::move(executor)),
      permits_(std::make_shared<io::Semaphore>(executor_, at_once)),
      deadline_(deadline) {}

awaitable<Result<SshHostConfig>> OpenSsh::settings(Question question, SshHostConfig from_files) {
  std::shared_ptr<Asked>& at = asked_[question];
  if (!at) at = std::make_shared<Asked>(executor_);
  const std::shared_ptr<Asked> asked = at;
  const io::Semaphore::Permit turn = co_await asked->turn->acquire();
  if (asked->answer) co_return *asked->answer;
  // Nobody has asked, or whoever did was cancelled.
  auto answer = co_await ask(question, from_files);
  const bool is_given_up = !answer && answer.error().kind == ErrorKind::kClosed;
  if (!is_given_up) asked->answer = answer;
  if (!answer) forget(question);
  co_return answer;
}

const SshHostConfig* OpenSsh::known(const Question& question) const {
  const auto at = asked_.find(question);
  if (at == asked_.end() || !at->second->answer || !*at->second->answer) return nullptr;
  return &**at->second->answer;
}

void OpenSsh::forget(const Question& question) {
  const auto at = asked_.find(question);
  if (at != asked_.end() && at->second->answer) asked_.erase(at);
}

awaitable<Result<SshHostConfig>> OpenSsh::ask(Question question, SshHostConfig from_files) {
  if (!io::in_path("ssh"))
    co_return fail(
        ErrorKind::kInvalid,
        "{}: only OpenSSH's client can decide this block, and there is no `ssh` in PATH: "
        "install it (Debian: openssh-client), {}",
        from_files.undecided, kRemedy);
  const io::Semaphore::Permit permit = co_await permits_->acquire();
  if (!defaults_) {
    std::vector<std::string> words{"-F", "none", "--", "nothing-configured"};
    auto printed = co_await run(std::move(words));
    if (!printed) co_return tl::unexpected(undecided_error(from_files, printed.error()));
    defaults_ = std::move(*printed);
  }
  std::vector<std::string> words;
  if (!question.config_file.empty()) words.insert(words.end(), {"-F", question.config_file});
  if (question.port != 0) words.insert(words.end(), {"-p", std::to_string(question.port)});
  if (!question.user.empty()) words.insert(words.end(), {"-l", question.user});
  words.insert(words.end(), {"--", question.name});
  auto printed = co_await run(std::move(words));
  if (!printed) co_return tl::unexpected(undecided_error(from_files, printed.error()));
  co_return read_openssh_answer(*printed, *defaults_, question.name, question.user, question.port,
                                from_files);
}

awaitable<Result<std::string>> OpenSsh::run(std::vector<std::string> words) {
  // -T: without a word about the terminal that it does not have.
  io::ProgramCall call{.argv = {"ssh", "-T", "-G"}, .name = "`ssh -G`", .most = kMaxAnswer};
  call.argv.insert(call.argv.end(), words.begin(), words.end());
  auto answer = io::awaited_output(std::move(call));
  auto output =
      co_await io::within(deadline_, std::move(answer), "`ssh -G` (a probe of Match exec?)");
  if (!output) co_return tl::unexpected(output.error());
  if (!output->status.clean())
    co_return fail(ErrorKind::kInvalid, "`ssh -G` ended with exit code {}: {}",
                   output->status.shell_code(), io::on_one_line(output->words));
  co_return std::move(output->out);
}

}  // namespace dt::launcher
