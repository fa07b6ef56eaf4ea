#include <unistd.h>

#include <csignal>
#include <memory>
#include <mutex>
#include <thread>

#include "core/preflight/preflight_messages.h"
#include "io/clock.h"
#include "launcher/agent/carry.h"
#include "launcher/agent/check_answers.h"
#include "launcher/agent/machine.h"
#include "launcher/agent/programs.h"
#include "launcher/bundle_use.h"

namespace dt::launcher {
namespace {

using namespace preflight;

/// What all answers share. It lives as long as the process, which ends by _exit.
struct Session {
  bool lines = false;
  std::mutex writing;

  template <class Message>
  void say(const Message& message) {
    const std::string bytes = wire::frame(message);
    const std::lock_guard lock(writing);
    write_out(bytes, lines);
  }
};

/// Answers in a thread of its own: a volume or a driver that hangs keeps nothing else waiting.
template <class Question, class Answer>
void answer(Session& session, const wire::Frame& frame, Answer (*find)(const Question&)) {
  auto question = wire::parse<Question>(frame.body);
  if (!question) return;
  std::thread([&session, find, question = std::move(*question)] {
    auto said = find(question);
    said.id = question.id;
    session.say(said);
  }).detach();
}

void take(Session& session, const wire::Frame& frame) {
  switch (frame.type) {
    case AskClock::kType:
      if (const auto question = wire::parse<AskClock>(frame.body))
        session.say(ClockSaid{question->id, io::wall_now()});
      return;
    case AskMachine::kType:
      return answer<AskMachine>(session, frame, find_machine);
    case AskCommand::kType:
      return answer<AskCommand>(session, frame, find_command);
    case AskVolume::kType:
      return answer<AskVolume>(session, frame, find_volume);
    case AskGpus::kType:
      return answer<AskGpus>(session, frame, find_gpus);
    case AskListen::kType:
      return answer<AskListen>(session, frame, listen_for_check);
    case AskDial::kType:
      return answer<AskDial>(session, frame, dial_for_check);
    case AskMeasure::kType:
      return answer<AskMeasure>(session, frame, measure_for_check);
    default:
      return;
  }
}

}  // namespace

int check_main(bool lines) {
  touch_bundle();
  ::signal(SIGPIPE, SIG_IGN);
  auto& session = *std::make_unique<Session>().release();  // for threads that outlive main()
  session.lines = lines;
  session.say(this_machine());
  wire::FrameDecoder frames;
  each_piece(lines, [&](std::string_view piece) {
    frames.feed(piece);
    for (;;) {
      const auto frame = frames.next();
      if (!frame) ::_exit(1);
      if (!*frame) return true;
      take(session, **frame);
    }
  });
  ::_exit(0);
}

}  // namespace dt::launcher
