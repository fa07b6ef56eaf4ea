#include "io/program_output.h"

#include <sys/mman.h>
#include <unistd.h>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <csignal>

#include "io/asio.h"
#include "io/process_end.h"
#include "io/process_tree.h"

namespace dt::io {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10;  ///< All that a pipe holds.
constexpr std::size_t kWords = std::size_t{8} << 10;

struct OutputPipe {
  OutputPipe(const asio::any_io_executor& executor, Fd pipe,
             std::function<bool(std::string&)> enough)
      : from(executor, pipe.release()), is_full(std::move(enough)) {
    from.non_blocking(true);
  }

  /// Until there is enough: a program that closes the pipe may live on.
  awaitable<void> read() {
    const auto buffer = asio::buffer(piece);
    for (bool is_over = false; !is_over;) {
      auto [ec, n] = co_await from.async_read_some(buffer, tok);
      text.append(piece, 0, n);
      if (is_full(text)) co_return;
      is_over = bool(ec);
    }
    asio::steady_timer never(co_await asio::this_coro::executor, kNever);
    co_await never.async_wait(tok);
  }
  /// What lies in the pipe of a program that has ended; false: another process has it.
  bool read_rest() {
    ssize_t n = 1;
    for (int i = 0; i < 2 && n > 0; ++i) {
      n = ::read(from.native_handle(), piece.data(), piece.size());
      if (n > 0) text.append(piece, 0, static_cast<std::size_t>(n));
    }
    return n == 0;
  }

  asio::posix::stream_descriptor from;
  std::function<bool(std::string&)> is_full;
  std::string text;
  std::string piece = std::string(kPiece, '\0');
};

/// A file that is `input`, to be read from its beginning.
Fd file_of(std::string_view input) {
  Fd file(::memfd_create("input", MFD_CLOEXEC));
  const bool is_whole =
      file && write_all(file.get(), input) && ::lseek(file.get(), 0, SEEK_SET) == 0;
  return is_whole ? std::move(file) : Fd();
}

}  // namespace

awaitable<Result<ProgramOutput>> awaited_output(ProgramCall call) {
  using namespace asio::experimental::awaitable_operators;
  const std::string name = call.name.empty() ? call.argv.front() : call.name;
  if (!in_path(call.argv.front()))
    co_return fail(ErrorKind::kInvalid, "{} is not installed here, or not in PATH",
                   call.argv.front());
  const Fd in = file_of(call.input);
  auto out_pipe = make_pipe();
  auto err_pipe = make_pipe();
  if (!in || !out_pipe || !err_pipe)
    co_return fail(ErrorKind::kIo, "{}: no file descriptor is left", name);
  auto child = Subprocess::start(
      call.argv, {in.get(), out_pipe->write.get(), err_pipe->write.get()}, call.is_without);
  if (!child) co_return tl::unexpected(child.error());
  out_pipe->write.reset();
  err_pipe->write.reset();
  Fd handle = open_pidfd(child->pid());
  if (!handle) co_return tl::unexpected(errno_error(errno, "watch " + name + " (pidfd_open)"));
  const auto executor = co_await asio::this_coro::executor;
  asio::posix::stream_descriptor end(executor, handle.release());
  OutputPipe out(executor, std::move(out_pipe->read), [&call](const std::string& text) {
    return text.size() > call.most || (call.is_enough && call.is_enough(text));
  });
  OutputPipe err(executor, std::move(err_pipe->read), [](std::string& text) {
    if (text.size() > kWords) text.erase(0, text.size() - kWords);
    return false;
  });
  asio::steady_timer timer(executor, call.deadline);
  auto race = process_ended(end) || out.read() || err.read() || timer.async_wait(tok);
  const auto first = co_await std::move(race);
  const auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none)
    co_return fail(ErrorKind::kClosed, "{} was given up", name);
  if (first.index() == 3)
    co_return fail(ErrorKind::kTimeout, "{}: nothing within {:.1f} s", name,
                   seconds(call.deadline));
  ExitStatus status;
  if (first.index() == 0) {
    if (!out.read_rest()) ::kill(-child->pid(), SIGKILL);
    err.read_rest();
    status = child->wait();
  }
  if (out.text.size() > call.most)
    co_return fail(ErrorKind::kProtocol, "{} prints without end", name);
  co_return ProgramOutput{status, std::move(out.text), std::move(err.text)};
}

Result<ProgramOutput> program_output(ProgramCall call) {
  asio::io_context context(1);
  Result<ProgramOutput> output;
  const auto keep = [&output](const std::exception_ptr& error, Result<ProgramOutput> result) {
    if (error) std::rethrow_exception(error);
    output = std::move(result);
  };
  asio::co_spawn(context, awaited_output(std::move(call)), keep);
  context.run();
  return output;
}

}  // namespace dt::io
