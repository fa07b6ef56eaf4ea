#include "launcher/backend/ssh/proxy_command.h"

#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "io/last_words.h"
#include "io/process_end.h"
#include "io/within.h"

namespace dt::launcher {

namespace asio = io::asio;
using io::awaitable;
using namespace std::chrono_literals;

/// Its stderr, and the end of what came by it.
struct ProxyCommand::Words {
  Words(const asio::any_io_executor& executor, int pipe) : from(executor, pipe) {
    from.non_blocking(true);
  }

  /// All that is there now.
  void take() {
    constexpr std::size_t kTail = 1000;
    std::array<char, 4096> piece{};
    boost::system::error_code ec;
    while (const std::size_t n = from.read_some(asio::buffer(piece), ec)) {
      const std::string_view bytes(piece.data(), n);
      io::write_all(STDERR_FILENO, bytes);
      tail += bytes;
      if (tail.size() > kTail) tail.erase(0, tail.size() - kTail);
    }
    is_over |= ec && ec != asio::error::would_block;
  }

  static awaitable<void> pass_on(std::shared_ptr<Words> words) {
    while (!words->is_over) {
      auto [ec] = co_await words->from.async_wait(asio::posix::descriptor_base::wait_read, io::tok);
      if (ec) break;
      words->take();
    }
  }

  asio::posix::stream_descriptor from;
  std::string tail;
  bool is_over = false;
};

Result<std::shared_ptr<ProxyCommand>> ProxyCommand::start(const asio::any_io_executor& executor,
                                                          std::string command,
                                                          const io::Fd& socket) {
  auto errors = io::make_pipe();
  if (!errors) return tl::unexpected(errors.error());
  auto process = io::Subprocess::start({"/bin/sh", "-c", "exec " + command},
                                       {socket.get(), socket.get(), errors->write.get()});
  if (!process) return tl::unexpected(process.error());
  auto words = std::make_shared<Words>(executor, errors->read.release());
  auto passing = Words::pass_on(words);
  asio::co_spawn(executor, std::move(passing), [](std::exception_ptr) {});
  return std::shared_ptr<ProxyCommand>(
      new ProxyCommand(std::move(command), std::move(*process), std::move(words)));
}

ProxyCommand::~ProxyCommand() {
  boost::system::error_code ignored;
  words_->from.close(ignored);  // a process that it left behind may hold the other end
}

awaitable<std::string> ProxyCommand::end() {
  auto ending = io::end_of(process_);
  auto ended = co_await io::within(1s, std::move(ending), "its end");
  if (!ended) co_return std::string();
  const int code = ended->shell_code();
  is_absent_ = code == 126 || code == 127;
  words_->take();
  co_return fmt::format("`{}` ended with exit code {}{}{}", command_, code,
                        words_->tail.empty() ? "" : ": ", io::on_one_line(words_->tail));
}

}  // namespace dt::launcher
