#include "supervisor/hosts/agent_connection.h"

#include "test/supervisor/agent_end.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;
using supervisor::AgentConnection;

namespace {

struct Linked : Loop, launcher::Backend {
  std::vector<std::unique_ptr<AgentEnd>> ends;  ///< One per connection, first one first.
  bool refuses = false;                         ///< No connection can be made.
  int tries = 0;
  int attached = 0;
  std::vector<std::string> downs;
  bool gone = false;
  Term outranked;  ///< What an agent obeys.
  std::unique_ptr<AgentConnection> link;

  /// Shorter limits are for silent agents; the default ones allow for a busy machine.
  explicit Linked(Duration answer_deadline = 20s, Duration silence_limit = 20s,
                  bool takes_over = false) {
    AgentConnection::Options options;
    options.job = "j";
    options.host.name = "a";
    options.answer_deadline = answer_deadline;
    options.silence_limit = silence_limit;
    options.takes_over = takes_over;
    options.term = Term(2);
    AgentConnection::Callbacks callbacks;
    callbacks.attached = [this](const AgentState& state) {
      CHECK(state.incarnation == 7);
      ++attached;
    };
    callbacks.frame = [](const wire::Frame&) {};
    callbacks.outranked = [this](Term term) { outranked = term; };
    callbacks.down = [this](const Error& error, bool is_gone) {
      downs.push_back(error.message);
      gone = is_gone;
    };
    link = std::make_unique<AgentConnection>(context.get_executor(), *this, std::move(options),
                                             std::move(callbacks));
    group.spawn(link->run());
  }
  ~Linked() override {
    io::asio::post(context, [this] {
      group.cancel();
      for (const auto& end : ends) end->channel.close();
    });
    CHECK(finished());
  }
  io::awaitable<Result<std::unique_ptr<io::ByteStream>>> open(
      Host, std::vector<std::string> argv) override {
    ++tries;
    if (refuses) co_return fail(ErrorKind::kUnavailable, "connection refused");
    co_return make_job_control(*this, argv, ends);
  }
  [[nodiscard]] std::string address(const Host&) const override { return "127.0.0.1"; }

  AgentEnd& connection(std::size_t n) {
    REQUIRE(until([&] { return ends.size() > n && ends[n]->was_told(AgentHello::kType); }));
    return *ends[n];
  }
  AgentEnd& attach_first() {
    link->attach(true);
    AgentEnd& end = connection(0);
    end.say_state();
    REQUIRE(until([&] { return attached == 1; }));
    return end;
  }
};

}  // namespace

TEST_CASE("a link that breaks is attached again, and does not start a second agent") {
  Linked l;
  AgentEnd& first = l.attach_first();
  CHECK(first.with_start);
  CHECK(l.link->up());
  first.channel.close();
  AgentEnd& second = l.connection(1);
  CHECK_FALSE(second.with_start);
  CHECK_FALSE(l.link->up());
  second.say_state();
  REQUIRE(l.until([&] { return l.attached == 2; }));
  CHECK(l.downs.size() == 1);
}

TEST_CASE("a link that is up is not touched by another attach") {
  Linked l;
  AgentEnd& first = l.attach_first();
  l.link->attach(true);
  first.channel.close();
  // It breaks as before: it is attached again, and no second agent is started.
  CHECK_FALSE(l.connection(1).with_start);
}

TEST_CASE("an agent that falls silent counts as a broken link") {
  Linked l(20s, 300ms);
  l.attach_first();
  REQUIRE(l.until([&] { return l.downs.size() == 1; }));
  CHECK_THAT(l.downs[0], Catch::Contains("nothing within 0.3 s"));
  l.connection(1).say_state();
  REQUIRE(l.until([&] { return l.attached == 2; }));
}

TEST_CASE("an agent that says something now and then keeps its link") {
  Linked l(20s, 1s);
  AgentEnd& agent = l.attach_first();
  for (int i = 0; i < 8; ++i) {
    agent.channel.send(Beat{1});
    l.context.restart();
    l.context.run_for(400ms);
  }
  CHECK(l.downs.empty());
  REQUIRE(l.until([&] { return l.downs.size() == 1; }));
}

TEST_CASE("an agent that takes the connection and never answers is a failed start") {
  Linked l(300ms);
  l.link->attach(true);
  REQUIRE(l.until([&] { return l.downs.size() == 1; }));
  CHECK_THAT(l.downs[0], Catch::Contains("waiting for the agent"));
  CHECK_FALSE(l.gone);
  l.context.restart();
  l.context.run_for(300ms);
  CHECK(l.tries == 1);  // whether to try again is the job's decision
}

TEST_CASE("a host that says no agent is there is not asked again") {
  Linked l;
  l.link->attach(false);
  l.connection(0).channel.send(NoAgent{});
  REQUIRE(l.until([&] { return l.downs.size() == 1; }));
  CHECK(l.gone);
  l.context.restart();
  l.context.run_for(300ms);
  CHECK(l.tries == 1);
}

TEST_CASE("a refusing agent is told with its reason") {
  Linked l;
  l.link->attach(true);
  const Term obeyed(GENERATE(0U, 2U, 3U));
  l.connection(0).channel.send(Refused{"a later term was here", obeyed});
  REQUIRE(l.until([&] { return l.downs.size() == 1; }));
  CHECK_THAT(l.downs[0], Catch::Contains("a later term was here"));
  CHECK(l.outranked == (obeyed == Term(3) ? obeyed : Term()));
}

TEST_CASE("a link that takes a job over ends once the host says that no agent is there") {
  Linked l(20s, 20s, true);
  l.refuses = true;
  l.link->attach(false);
  l.link->shut_down(5);
  REQUIRE(l.until([&] { return l.tries == 2; }));
  l.refuses = false;
  AgentEnd& first = l.connection(0);
  first.say_state();
  REQUIRE(l.until([&] { return first.grace == 5U; }));
  CHECK(first.takes_over);
  first.channel.close();  // it may have ended, or the link broke
  AgentEnd& second = l.connection(1);
  second.channel.send(Refused{"it is stopping", {}});
  l.connection(2).channel.send(NoAgent{});
  REQUIRE(l.until([&] { return l.link->ended(); }));
}

TEST_CASE("reaching an agent of an earlier term is tried again with growing delay, told once") {
  Linked l;
  l.refuses = true;
  l.link->attach(false);
  REQUIRE(l.until([&] { return l.tries == 3; }));
  CHECK(l.downs.size() == 1);
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(l.until([&] { return l.tries == 4; }));
  CHECK(std::chrono::steady_clock::now() - begin > 250ms);
  l.refuses = false;
  l.connection(0).say_state();
  REQUIRE(l.until([&] { return l.attached == 1; }));
}

TEST_CASE("a link that is up ends once its agent has ended") {
  Linked l;
  AgentEnd& end = l.attach_first();
  l.link->shut_down(1234);
  REQUIRE(l.until([&] { return end.grace.has_value(); }));
  CHECK(*end.grace == 1234);
  CHECK_FALSE(l.link->ended());
  end.channel.close();
  REQUIRE(l.until([&] { return l.link->ended(); }));
  CHECK(l.tries == 1);
  CHECK(l.downs.empty());
}

TEST_CASE("shut down while it is being made, the link tells the agent as soon as it can") {
  Linked l;
  l.link->attach(true);
  AgentEnd& end = l.connection(0);
  l.link->shut_down(5);
  CHECK_FALSE(l.link->ended());
  end.say_state();
  REQUIRE(l.until([&] { return end.grace == 5U; }));
  CHECK(l.attached == 0);
  end.channel.close();
  REQUIRE(l.until([&] { return l.link->ended(); }));
}

TEST_CASE("shut down while it is broken, the link comes back to tell the agent") {
  Linked l;
  AgentEnd& first = l.attach_first();
  l.refuses = true;
  first.channel.close();
  REQUIRE(l.until([&] { return l.downs.size() == 1 && l.tries >= 3; }));
  l.link->shut_down(5);
  CHECK_FALSE(l.link->ended());
  l.refuses = false;
  AgentEnd& second = l.connection(1);
  second.say_state();
  REQUIRE(l.until([&] { return second.grace == 5U; }));
  second.channel.close();
  REQUIRE(l.until([&] { return l.link->ended(); }));
}

TEST_CASE("shut down before anything was reached, or after a failed start, a link just ends") {
  Linked l;
  if (GENERATE(false, true)) {
    l.refuses = true;
    l.link->attach(true);
    REQUIRE(l.until([&] { return l.downs.size() == 1; }));
  }
  l.link->shut_down(5);
  REQUIRE(l.until([&] { return l.link->ended(); }));
  CHECK(l.ends.empty());
}

TEST_CASE("a link that is cancelled ends in every state") {
  const int state = GENERATE(0, 1, 2, 3);
  Linked l;
  l.refuses = state == 3;
  if (state == 1) {
    l.link->attach(true);
    l.connection(0);
  }
  if (state == 2) l.attach_first();
  if (state == 3) {
    l.link->attach(false);
    REQUIRE(l.until([&] { return l.tries == 3; }));
  }
  io::asio::post(l.context, [&] { l.group.cancel(); });
  CHECK(l.until([&] { return l.link->ended(); }));
}
