#include "supervisor/fleet/slurm_queue.h"

#include "launcher/placement/scheduler_program.h"

namespace dt::supervisor {
namespace {

Result<std::string> ask(const std::string& program, const std::vector<std::string>& arguments,
                        std::string_view input = {}) {
  Answer answer = launcher::ask_scheduler(program, arguments, input);
  if (!answer.is_there) return fail(ErrorKind::kUnavailable, "{}", answer.text);
  return std::move(answer.text);
}

Result<void> done(const Result<std::string>& answer) {
  return answer.map([](const std::string&) {});
}

}  // namespace

Result<std::vector<Machine>> SlurmQueue::list() const {
  const auto text = ask("squeue", list_holders_words(job_));
  if (!text) return tl::unexpected(text.error());
  return parse_holders(*text, job_);
}

Result<std::string> SlurmQueue::submit(const HolderOrder& order) const {
  const auto text = ask("sbatch", submit_words(order), holder_script(order));
  if (!text) return text;
  // "41" or "41;cluster"
  return text->substr(0, text->find_first_of(";\n"));
}

Result<void> SlurmQueue::mark(const Machine& holder) const {
  return done(ask("scontrol", {"update", fmt::format("JobId={}", holder.id),
                               "Comment=" + holder_comment(job_, holder)}));
}

Result<void> SlurmQueue::cancel(const std::string& id) const {
  return done(ask("scancel", {"--quiet", id}));
}

Result<void> SlurmQueue::cancel_pending(const std::string& id) const {
  return done(ask("scancel", {"--quiet", "--state=PENDING", id}));
}

}  // namespace dt::supervisor
