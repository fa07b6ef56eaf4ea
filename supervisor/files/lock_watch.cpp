#include "supervisor/files/lock_watch.h"

#include <utility>

namespace dt::supervisor {

io::awaitable<void> LockWatch::run() {
  seen_at_ = io::steady_now();
  for (;;) {
    co_await io::sleep_for(JobFiles::kLockLook);
    const Time asked_at = io::steady_now();
    const auto holder = co_await files_.other_holder();
    if (!holder) continue;  // it is not known: see look()
    seen_at_ = asked_at;
    look();
    if (!*holder) continue;
    on_taken(fmt::format("{} was taken over from {} (pid {} there)", context_.spec.job_dir,
                         (*holder)->host, (*holder)->pid));
    co_return;
  }
}

void LockWatch::look() {
  const bool is_doubtful = io::steady_now() - seen_at_ > JobFiles::kDoubtAfter;
  if (is_doubtful != std::exchange(is_doubtful_, is_doubtful))
    context_.post(LockDoubtful{is_doubtful});
}

}  // namespace dt::supervisor
