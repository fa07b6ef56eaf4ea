/// Starts the agent on a host, and copies the bundle there first if the host lacks a file of it.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/files/hosts.h"
#include "io/asio.h"
#include "io/byte_stream.h"
#include "io/log.h"
#include "io/semaphore.h"
#include "io/thread_pool.h"
#include "launcher/backend/bundle.h"
#include "launcher/backend/exec.h"

namespace dt::launcher {

struct BringUpLimits {
  Duration start = std::chrono::seconds(20);  ///< From the command's start to its first line.
  Duration copy = std::chrono::seconds(300);  ///< The bundle to one host.
  std::size_t copies = 16;                    ///< Hosts that it is copied to at once.
};

class BringUp {
 public:
  /// `files`: the bundle's, read when first needed.
  BringUp(io::asio::any_io_executor executor, std::vector<std::string> files, Exec& exec,
          const BringUpLimits& limits, io::ThreadPool& threads, io::Log& log);

  /// The agent's stdin and stdout.
  io::awaitable<Result<io::StreamPtr>> open(Host host, std::vector<std::string> argv);
  /// See Backend::doing.
  [[nodiscard]] std::string doing(const Host& host) const;

 private:
  /// A command of the bundle, once it has answered.
  struct Started {
    std::string answer;  ///< That the agent has started, or which files are missing.
    ExecStreamPtr stream;
  };
  io::awaitable<Result<Started>> try_start(Host host, std::string script);
  io::awaitable<Result<void>> pack();
  /// `missing`: the host's answer, with the hashes of the files to send.
  io::awaitable<Result<void>> copy(Host host, std::string missing);

  std::vector<std::string> files_;
  Exec* exec_;
  const BringUpLimits* limits_;
  io::ThreadPool* threads_;
  io::Log* log_;
  std::shared_ptr<const Bundle> bundle_;
  std::vector<std::string> packed_;  ///< The bundle's files as sent, once a host lacks one.
  std::shared_ptr<io::Semaphore> copies_;
  std::shared_ptr<io::Semaphore> packing_;
  std::set<Host> copying_;
};

}  // namespace dt::launcher
