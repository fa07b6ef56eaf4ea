/// A conversation with `dtagent --check` on one host: questions out, each with a deadline, answers
/// in any order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/files/hosts.h"
#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "io/frame_channel.h"
#include "launcher/backend/backend.h"

namespace dt::launcher {

/// One thread.
class HostTalk {
 public:
  HostTalk(io::asio::any_io_executor executor, Backend& backend, Host host)
      : executor_(std::move(executor)), backend_(&backend), host_(std::move(host)) {}

  /// Reaches the host, and reads what its program says first. Errors name host and phase.
  io::awaitable<Result<AgentState>> open();
  /// After open(): both must run until close().
  io::awaitable<void> write_loop() { return channel_->write_loop(); }
  io::awaitable<void> read_loop();
  /// The host's program ends with the connection.
  void close();
  [[nodiscard]] bool is_open() const { return channel_ && broken_.empty(); }

  /// Sends a question. Its number, for answer().
  template <class Question>
  std::uint32_t ask(Question question) {
    question.id = ++last_id_;
    asked_[question.id].arrives = std::make_unique<io::asio::steady_timer>(executor_, io::kNever);
    if (channel_) channel_->send(question);
    return question.id;
  }
  /// `what`: what is waited for, for the error.
  template <class Question>
  io::awaitable<Result<typename Question::Answer>> answer(std::uint32_t id, Duration limit,
                                                          const char* what) {
    auto body = co_await body_of_answer(id, Question::Answer::kType, limit, what);
    if (!body) co_return tl::unexpected(body.error());
    co_return wire::parse<typename Question::Answer>(*body);
  }

  /// The facts of such an answer.
  template <class Question>
  io::awaitable<Result<decltype(Question::Answer::facts)>> facts(std::uint32_t id, Duration limit,
                                                                 const char* what) {
    auto said = co_await answer<Question>(id, limit, what);
    if (!said) co_return tl::unexpected(said.error());
    co_return std::move(said->facts);
  }

 private:
  struct Asked {
    std::unique_ptr<io::asio::steady_timer> arrives;  ///< Cancelled when the answer is there.
    std::uint16_t type = 0;                           ///< Of the answer; 0: none yet.
    std::string body;
  };
  io::awaitable<Result<std::string>> body_of_answer(std::uint32_t id, std::uint16_t type,
                                                    Duration limit, const char* what);
  void end(std::string why);

  io::asio::any_io_executor executor_;
  Backend* backend_;
  Host host_;
  std::unique_ptr<io::FrameChannel> channel_;
  std::uint32_t last_id_ = 0;
  std::map<std::uint32_t, Asked> asked_;
  std::string broken_;  ///< Why the connection has ended; empty: it has not.
};

}  // namespace dt::launcher
