#include "supervisor/volume/volume_client.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>

#include "io/clock.h"
#include "io/fd.h"
#include "io/frame_channel.h"
#include "io/subprocess.h"

namespace dt::supervisor {

using io::awaitable;
using io::tok;
using namespace std::chrono_literals;
namespace asio = io::asio;

namespace {

constexpr int kMaxTries = 3;

/// Done twice it is as if done once.
bool repeatable(const VolumeRequest& q) {
  if (q.op == VolumeOp::kAppend) return q.number != kAnySize;
  return q.op != VolumeOp::kWriteNew && q.op != VolumeOp::kRename;
}

Error reply_error(const VolumeReply& reply) {
  if (reply.error == kConflict) return {ErrorKind::kInvalid, reply.text};
  Error error = errno_error(reply.error, reply.text);
  if (reply.error == EACCES || reply.error == EPERM || reply.error == EROFS)
    error.kind = ErrorKind::kDenied;
  return error;
}

tl::unexpected<Error> helper_gone(const std::string& path) {
  return fail(ErrorKind::kUnavailable, "the volume helper ended while it worked on {}", path);
}

}  // namespace

/// A request or an append of output, kept alive by the client and by its waiter.
struct VolumeClient::Entry {
  Entry(const asio::any_io_executor& executor, VolumeRequest q, Time queued)
      : request(std::move(q)), done(executor), since(queued) {}

  VolumeRequest request;
  asio::steady_timer done;  ///< Cancelled when `outcome` is there.
  std::optional<Result<VolumeReply>> outcome;
  Time since;           ///< When it was queued; output: its first byte.
  bool awaited = true;  ///< A coroutine waits for it.
  bool begun = false;   ///< Was given to a helper.
  bool again = false;   ///< May be given to the next helper when one died over it.
  bool is_output = false;
  std::size_t output_bytes = 0;
  int tries = 0;
};

struct VolumeClient::Helper {
  Helper(const asio::any_io_executor& executor, int fd, int hint_fd)
      : stream(io::unix_stream(io::UnixSocket(executor, asio::local::stream_protocol(), fd))),
        hints(executor, hint_fd) {}

  int pid = -1;
  std::unique_ptr<io::ByteStream> stream;
  asio::posix::stream_descriptor hints;
  wire::FrameDecoder decoder{std::size_t{256} << 20};
};

VolumeClient::VolumeClient(asio::any_io_executor executor, Options options)
    : executor_(executor),
      options_(std::move(options)),
      output_(options_.queue_limit),
      hints_(executor),
      wake_(executor, asio::steady_timer::time_point::max()),
      pause_(executor) {}

VolumeClient::~VolumeClient() {
  end_helper();
  reap();
}

awaitable<void> VolumeClient::run() {
  // Cancelled, it ends as by stop(): the remaining requests are answered, none is torn.
  co_await asio::this_coro::throw_if_cancelled(false);
  while (!stopped_) {
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) break;
    if (is_idle()) {
      co_await wake_.async_wait(tok);
      continue;
    }
    if (const auto started = helper_ ? Result<void>() : start_helper(); !started) {
      const auto first = current_ ? current_ : requests_.empty() ? nullptr : requests_.front();
      if (first && first->awaited) finish(*first, tl::unexpected(started.error()));
      co_await pause(1s);
      continue;
    }
    if (!current_) current_ = next();
    co_await work();
  }
  stop();
  end_helper();
  refuse_rest();
  co_await hints_.join();
}

awaitable<void> VolumeClient::work() {
  const auto entry = current_;
  entry->begun = true;
  asked_ = std::chrono::steady_clock::now();
  auto reply = co_await ask_helper(entry->request);
  asked_.reset();
  if (stopped_) co_return;
  if (!reply) {
    end_helper();
    if (entry->again && ++entry->tries < kMaxTries) {
      co_await pause(entry->tries * 50ms);
      co_return;
    }
  } else if (reply->error != 0) {
    reply = tl::unexpected(reply_error(*reply));
  }
  finish(*entry, std::move(reply));
}

bool VolumeClient::has_output() const {
  return !output_.empty() || (current_ && current_->is_output);
}

bool VolumeClient::is_output_stalled() const {
  return has_output() && motion_.is_stalled(io::steady_now());
}

Duration VolumeClient::last_output_stall() const {
  return is_output_stalled() ? motion_.still_for(io::steady_now()) : motion_.last_stall();
}

bool VolumeClient::is_output_moving() const {
  return has_output() && !has_haste_ && !motion_.is_stalled(io::steady_now());
}

bool VolumeClient::is_idle() const { return !current_ && requests_.empty() && output_.empty(); }

std::shared_ptr<VolumeClient::Entry> VolumeClient::next() {
  const bool is_outputs_turn = requests_.empty() || requests_in_a_row_ >= kRequestsInARow;
  if (!output_.empty() && is_outputs_turn) return output_entry(output_.take());
  const auto first = requests_.front();
  for (const std::string* path : {&first->request.path, &first->request.path2}) {
    const auto since = output_.oldest(*path);
    if (since && *since <= first->since) return output_entry(output_.take(*path));
  }
  requests_.pop_front();
  requests_in_a_row_ = output_.empty() ? 0 : requests_in_a_row_ + 1;
  return first;
}

std::shared_ptr<VolumeClient::Entry> VolumeClient::output_entry(OutputQueue::Append append) {
  requests_in_a_row_ = 0;
  const std::size_t bytes = append.bytes.size() - append.mark;
  VolumeRequest request{.op = VolumeOp::kAppend,
                        .path = std::move(append.path),
                        .bytes = std::move(append.bytes),
                        .number = kAnySize,
                        .limit = append.limit};
  auto entry = std::make_shared<Entry>(executor_, std::move(request), append.since);
  entry->awaited = false;
  entry->is_output = true;
  entry->output_bytes = bytes;
  entry->again = true;  // better a batch of output twice than lost
  return entry;
}

void VolumeClient::refuse_rest() {
  while (!is_idle()) {
    const auto entry = current_ ? current_ : next();
    current_ = entry;
    finish(*entry,
           fail(ErrorKind::kClosed, "stopping; {} was not written or read", entry->request.path));
  }
}

void VolumeClient::stop() {
  stopped_ = true;
  if (helper_) helper_->stream->close();
  wake_.cancel();
  pause_.cancel();
}

awaitable<void> VolumeClient::pause(Duration duration) {
  if (stopped_) co_return;
  pause_.expires_after(duration);
  co_await pause_.async_wait(tok);
}

awaitable<Result<VolumeReply>> VolumeClient::ask_helper(const VolumeRequest& request) {
  const std::string bytes = wire::frame(request);
  auto written = co_await helper_->stream->write(bytes);
  if (!written) co_return helper_gone(request.path);
  std::string buffer(std::size_t{64} << 10, '\0');
  auto reply = co_await io::receive_frame(*helper_->stream, helper_->decoder, buffer, "the helper");
  if (reply) co_return wire::parse<VolumeReply>(reply->body);
  if (reply.error().kind == ErrorKind::kProtocol) co_return tl::unexpected(reply.error());
  co_return helper_gone(request.path);
}

awaitable<void> VolumeClient::read_hints(std::shared_ptr<Helper> helper) {
  char bytes[64];
  const auto buffer = asio::buffer(bytes);
  for (;;) {
    auto [ec, n] = co_await helper->hints.async_read_some(buffer, tok);
    if (ec) break;
    if (on_hint) on_hint();
  }
}

Result<void> VolumeClient::start_helper() {
  reap();
  auto stream = io::make_socket_pair();
  if (!stream) return tl::unexpected(stream.error());
  auto hints = io::make_pipe();
  if (!hints) return tl::unexpected(hints.error());
  auto pid =
      io::spawn(options_.helper.front(), options_.helper,
                {stream->theirs.get(), hints->write.get(), STDERR_FILENO}, io::ProcessGroup::kOurs);
  if (!pid) return tl::unexpected(pid.error().at("the volume helper"));
  helper_ = std::make_shared<Helper>(executor_, stream->ours.release(), hints->read.release());
  helper_->pid = *pid;
  hints_.spawn(read_hints(helper_));
  if (!watched_folder_.empty()) watch(watched_folder_, watched_name_);
  return {};
}

void VolumeClient::end_helper() {
  if (!helper_) return;
  ::kill(helper_->pid, SIGKILL);  // not reaped yet: the pid is still its own
  dead_.push_back(helper_->pid);
  boost::system::error_code ignored;
  helper_->hints.close(ignored);  // ends read_hints(), which keeps the descriptor until then
  helper_.reset();
  reap();
}

void VolumeClient::reap() {
  std::erase_if(dead_, [](int pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

int VolumeClient::helper_pid() const { return helper_ ? helper_->pid : -1; }

void VolumeClient::forget(const Entry& entry) {
  if (current_.get() == &entry) current_.reset();
  std::erase_if(requests_, [&entry](const auto& e) { return e.get() == &entry; });
}

void VolumeClient::finish(Entry& entry, Result<VolumeReply> outcome) {
  if (!entry.awaited && !outcome && on_append_error)
    on_append_error(entry.request.path, outcome.error());
  if (entry.is_output && !outcome)
    output_.lose(entry.request.path, entry.output_bytes, outcome.error().message);
  entry.outcome.emplace(std::move(outcome));
  entry.done.cancel();
  forget(entry);
  if (!entry.is_output) return;
  motion_.moved(io::steady_now());
  if (on_output_done) on_output_done(entry.request.path, entry.output_bytes);
}

void VolumeClient::enqueue(std::shared_ptr<Entry> entry) {
  requests_.push_back(std::move(entry));
  wake_.cancel();
}

void VolumeClient::queue_append(const std::string& path, std::string bytes, std::uint64_t limit) {
  if (stopped_) return;
  if (!has_output()) motion_.began(io::steady_now());
  for (const auto& dropped : output_.add(path, std::move(bytes), limit, io::steady_now()))
    if (on_output_done) on_output_done(dropped.path, dropped.bytes.size());
  wake_.cancel();
}

void VolumeClient::watch(std::string folder, std::string name) {
  watched_folder_ = folder;
  watched_name_ = name;
  auto entry = std::make_shared<Entry>(
      executor_,
      VolumeRequest{.op = VolumeOp::kWatch, .path = std::move(folder), .path2 = std::move(name)},
      io::steady_now());
  entry->awaited = false;
  enqueue(std::move(entry));
}

awaitable<Result<VolumeReply>> VolumeClient::call(VolumeRequest request) {
  if (stopped_) co_return fail(ErrorKind::kClosed, "stopping; {} is not touched", request.path);
  if (request.op >= VolumeOp::kWriteNew && !request.path.starts_with(own_)) {
    request.lock_file = lock_file_;
    request.lock = lock_;
  }
  auto entry = std::make_shared<Entry>(executor_, std::move(request), io::steady_now());
  entry->again = repeatable(entry->request);
  entry->done.expires_after(options_.deadline);
  enqueue(entry);
  auto [ec] = co_await entry->done.async_wait(tok);
  if (entry->outcome) co_return std::move(*entry->outcome);
  if (!entry->begun) forget(*entry);
  if (ec) co_return fail(ErrorKind::kClosed, "stopping; {} is not waited for", entry->request.path);
  co_return fail(ErrorKind::kTimeout, "the shared volume does not answer: {}", entry->request.path);
}

template <class T>
awaitable<Result<T>> VolumeClient::call_for(T VolumeReply::*part, VolumeRequest request) {
  auto reply = co_await call(std::move(request));
  if (!reply) co_return tl::unexpected(reply.error());
  co_return std::move(*reply.*part);
}
// Those of the header's functions: as a template there each program that includes it needs call().
template awaitable<Result<bool>> VolumeClient::call_for(bool VolumeReply::*, VolumeRequest);
template awaitable<Result<std::uint64_t>> VolumeClient::call_for(std::uint64_t VolumeReply::*,
                                                                 VolumeRequest);
template awaitable<Result<std::vector<std::string>>> VolumeClient::call_for(
    std::vector<std::string> VolumeReply::*, VolumeRequest);

awaitable<Result<void>> VolumeClient::call_void(VolumeRequest request) {
  auto reply = co_await call(std::move(request));
  if (!reply) co_return tl::unexpected(reply.error());
  co_return Result<void>();
}

awaitable<Result<std::optional<std::string>>> VolumeClient::read(std::string path,
                                                                 std::size_t most) {
  VolumeRequest request{.op = VolumeOp::kRead, .path = std::move(path), .number = most};
  auto reply = co_await call(std::move(request));
  if (!reply) co_return tl::unexpected(reply.error());
  if (!reply->yes) co_return std::nullopt;
  co_return std::move(reply->bytes);
}

Duration VolumeClient::stalled_for() const {
  return asked_ ? std::chrono::steady_clock::now() - *asked_ : Duration::zero();
}

VolumeClient::Waiting VolumeClient::waiting() const {
  const Time now = io::steady_now();
  std::optional<Time> output = output_.oldest();
  std::optional<Time> request;
  if (!requests_.empty()) request = requests_.front()->since;
  Waiting out{requests_.size(), output_.length(), output_.bytes()};
  if (current_ && current_->is_output) {
    output = current_->since;
    ++out.appends;
    out.output_bytes += current_->request.bytes.size();
  } else if (current_) {
    request = current_->since;
    ++out.requests;
  }
  out.output_age = output ? now - *output : Duration{};
  out.age = std::max(out.output_age, request ? now - *request : Duration{});
  return out;
}

awaitable<bool> VolumeClient::drain(Duration limit) {
  auto until = std::chrono::steady_clock::now() + limit;
  asio::steady_timer timer(executor_);
  while (!is_idle() && !stopped_ && std::chrono::steady_clock::now() < until) {
    if (is_output_moving()) until = std::chrono::steady_clock::now() + limit;
    timer.expires_after(5ms);
    auto [ec] = co_await timer.async_wait(tok);
    if (ec) break;
  }
  co_return is_idle();
}

}  // namespace dt::supervisor
