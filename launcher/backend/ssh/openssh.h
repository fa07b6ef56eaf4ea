/// What OpenSSH's client would do for a host, where our own parser cannot know: `ssh -G`.
///
/// The program runs beside the loop, few at a time, so that a slow `Match exec` delays its own host
/// alone. One thread. Must outlive its coroutines.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/asio.h"
#include "io/semaphore.h"
#include "io/thread_pool.h"
#include "launcher/backend/ssh/config.h"

namespace dt::launcher {

class OpenSsh {
 public:
  /// `deadline`: for one answer, from its process's start.
  OpenSsh(io::asio::any_io_executor executor, std::size_t at_once, Duration deadline);

  struct Question {
    std::string name;         ///< As the user wrote it.
    std::string user;         ///< As given beside the config; empty: the config decides.
    std::uint16_t port = 0;   ///< The same; 0.
    std::string config_file;  ///< Empty: the usual ones.
    friend auto operator<=>(const Question&, const Question&) = default;
  };
  /// Settings of a host. `from_files`: what our own parser made of the files; its `undecided` is
  /// named in errors. The answer is kept until forget().
  io::awaitable<Result<SshHostConfig>> settings(Question question, SshHostConfig from_files);
  /// The kept answer; null: there is none.
  [[nodiscard]] const SshHostConfig* known(const Question& question) const;
  /// The next settings() asks again: with this answer the host was not reached.
  void forget(const Question& question);

 private:
  /// One question, shared by all who wait for its answer.
  struct Asked {
    explicit Asked(const io::asio::any_io_executor& executor)
        : turn(std::make_shared<io::Semaphore>(executor, 1)) {}
    std::shared_ptr<io::Semaphore> turn;  ///< To ask.
    std::optional<Result<SshHostConfig>> answer;
  };

  io::awaitable<Result<SshHostConfig>> ask(Question question, SshHostConfig from_files);
  /// What `ssh -G` with these words prints.
  io::awaitable<Result<std::string>> run(std::vector<std::string> words);

  io::asio::any_io_executor executor_;
  std::shared_ptr<io::Semaphore> permits_;
  Duration deadline_;
  std::map<Question, std::shared_ptr<Asked>> asked_;
  std::optional<std::string> defaults_;  ///< What is printed where nothing is configured.
};

}  // namespace dt::launcher
