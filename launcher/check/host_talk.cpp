#include "launcher/check/host_talk.h"

#include <chrono>
#include <vector>

#include "io/within.h"

namespace dt::launcher {

using io::awaitable;

namespace {

constexpr Duration kGreetingDeadline = std::chrono::seconds(20);

}  // namespace

awaitable<Result<AgentState>> HostTalk::open() {
  std::vector<std::string> words = {"dtagent", "--check"};
  auto stream = co_await backend_->open(host_, std::move(words));
  if (!stream) co_return tl::unexpected(stream.error());
  channel_ = std::make_unique<io::FrameChannel>(executor_, std::move(*stream));
  auto frame = co_await io::within(kGreetingDeadline, channel_->receive(), "dtagent --check");
  if (!frame) co_return tl::unexpected(frame.error().at(to_string(host_)));
  if (frame->type != AgentState::kType)
    co_return fail(ErrorKind::kProtocol, "{}: dtagent --check says something else than expected",
                   host_);
  co_return wire::parse<AgentState>(frame->body);
}

awaitable<void> HostTalk::read_loop() {
  for (;;) {
    auto frame = co_await channel_->receive();
    if (!frame) co_return end(frame.error().message);
    std::uint32_t id = 0;
    wire::Reader(frame->body).get(id);
    const auto asked = asked_.find(id);
    if (asked == asked_.end()) continue;
    asked->second.type = frame->type;
    asked->second.body = std::move(frame->body);
    asked->second.arrives->cancel();
  }
}

void HostTalk::close() {
  if (channel_) channel_->close();
  end("the check has ended");
}

void HostTalk::end(std::string why) {
  if (broken_.empty()) broken_ = std::move(why);
  for (auto& [id, asked] : asked_) asked.arrives->cancel();
}

awaitable<Result<std::string>> HostTalk::body_of_answer(std::uint32_t id, std::uint16_t type,
                                                        Duration limit, const char* what) {
  Asked& asked = asked_.at(id);
  if (asked.type == 0 && broken_.empty()) {
    asked.arrives->expires_after(limit);
    co_await asked.arrives->async_wait(io::tok);
  }
  std::string body = std::move(asked.body);
  const std::uint16_t got = asked.type;
  asked_.erase(id);
  if (got == type) co_return std::move(body);
  if (got != 0) co_return fail(ErrorKind::kProtocol, "{}: an answer of another kind came", what);
  if (!broken_.empty())
    co_return fail(ErrorKind::kClosed, "{}: the connection ended: {}", what, broken_);
  co_return fail(ErrorKind::kTimeout, "{}: no answer within {:.0f} s", what, seconds(limit));
}

}  // namespace dt::launcher
