#include "supervisor/control/control_server.h"

#include <sys/stat.h>

#include "io/frame_channel.h"
#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;
using supervisor::ControlServer;

namespace {

struct Served : Loop {
  TempDir dir;
  bool owner_gone = false;
  std::unique_ptr<ControlServer> server;

  explicit Served(std::size_t console_limit = std::size_t{4} << 20) {
    ControlServer::Options options;
    options.console_limit = console_limit;
    server = std::make_unique<ControlServer>(context.get_executor(), options, echo);
    server->on_owner_gone = [this] { owner_gone = true; };
    REQUIRE(server->listen(dir / "control"));
    group.spawn(server->run());
  }
  ~Served() {
    server->stop();
    finished();
  }
  static io::awaitable<std::string> echo(supervisor::ControlAsk ask) {
    co_return ask.op == supervisor::Op::kStop ? "you said stop" : "you said status";
  }
};

/// A dtctl or dtlaunch: collects the frames that it receives if it reads.
struct Peer {
  Served& served;
  io::FrameChannel channel;
  std::vector<wire::Frame> frames;
  bool closed = false;
  bool ended = false;
  bool wrote = false;

  explicit Peer(Served& to, bool reads = true) : served(to), channel(open(to)) {
    to.group.spawn(write());
    if (reads) to.group.spawn(read());
    ended = !reads;
  }
  ~Peer() {
    channel.close();
    served.until([&] { return ended && wrote; });
  }
  static io::FrameChannel open(Served& to) {
    io::UnixSocket socket(to.context);
    socket.connect(io::asio::local::stream_protocol::endpoint(to.dir / "control"));
    return io::FrameChannel(to.context.get_executor(), io::unix_stream(std::move(socket)));
  }
  io::awaitable<void> write() {
    co_await channel.write_loop();
    wrote = true;
  }
  io::awaitable<void> read() {
    ended = false;
    for (;;) {
      auto frame = co_await channel.receive();
      if (!frame) break;
      frames.push_back(std::move(*frame));
    }
    closed = true;
    ended = true;
  }
  void ask(const std::string& json) {
    io::ControlRequest request;
    request.json = json;
    channel.send(request);
  }
  [[nodiscard]] std::string text() const {
    std::string out;
    for (const auto& frame : frames) {
      if (frame.type == io::ControlReply::kType)
        out += "reply " + wire::parse<io::ControlReply>(frame.body)->json + "\n";
      if (frame.type == io::Console::kType) out += wire::parse<io::Console>(frame.body)->bytes;
      if (frame.type == io::JobEnded::kType) {
        const auto ended_with = wire::parse<io::JobEnded>(frame.body);
        out += fmt::format("ended {} {}\n", ended_with->exit_code, ended_with->message);
      }
    }
    return out;
  }
  bool sees(const std::string& what) {
    return served.until([&] { return text().find(what) != std::string::npos; }, 30s);
  }
};

}  // namespace

TEST_CASE("control: requests are answered in order, on a private socket", "[control]") {
  Served served;
  struct stat st {};
  REQUIRE(::stat((served.dir / "control").c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0600);
  Peer peer(served);
  peer.ask(R"({"op":"status"})");
  peer.ask("rubbish");
  peer.ask(R"({"op":"dance"})");
  peer.ask(R"({"op":"stop"})");
  REQUIRE(peer.sees("said stop"));
  CHECK(peer.text() ==
        "reply you said status\n"
        "reply {\"error\":\"a request is a JSON object with a text \\\"op\\\"\",\"ok\":false}\n"
        "reply {\"error\":\"unknown request \\\"dance\\\"\",\"ok\":false}\n"
        "reply you said stop\n");
}

TEST_CASE("control: a request that is nested deeply is one like others", "[control]") {
  constexpr std::size_t kDepth = 200'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  Served served;
  Peer peer(served);
  peer.ask(deep);
  peer.ask("{\"op\":" + deep + "}");
  peer.ask("{\"op\":\"console\",\"owner\":" + deep + "}");
  REQUIRE(peer.sees("reply {\"ok\":true}"));
  CHECK_FALSE(served.server->has_owner());
}

TEST_CASE("control: consoles get every line, the owner also what was said before, all the end",
          "[control]") {
  Served served;
  served.server->console("early\n");
  Peer stranger(served);
  stranger.ask(R"({"op":"console"})");
  REQUIRE(stranger.sees("ok"));
  Peer first(served);
  Peer second(served);
  first.ask(R"({"op":"console","owner":true})");
  REQUIRE(first.sees("early"));
  second.ask(R"({"op":"console"})");
  REQUIRE(second.sees("ok"));
  CHECK(served.server->has_owner());
  served.server->console("now\n");
  io::JobEnded ended;
  ended.exit_code = 3;
  ended.message = "worker 1 failed";
  auto end = [&]() -> io::awaitable<void> { co_await served.server->end(ended, 5s); };
  served.group.spawn(end());
  REQUIRE(first.sees("ended"));
  REQUIRE(second.sees("ended"));
  CHECK(first.text() == "reply {\"ok\":true}\nearly\nnow\nended 3 worker 1 failed\n");
  CHECK(second.text() == "reply {\"ok\":true}\nnow\nended 3 worker 1 failed\n");
  REQUIRE(stranger.sees("ended"));
  CHECK(stranger.text() == second.text());
  Peer late(served);
  late.ask(R"({"op":"console"})");
  CHECK(late.sees("ended 3"));
  first.channel.close();
  CHECK(served.until([&] { return !served.server->has_owner(); }));
  CHECK_FALSE(served.owner_gone);
}

TEST_CASE("control: the owner's going is noticed, another console's is not", "[control]") {
  Served served;
  Peer other(served);
  Peer owner(served);
  other.ask(R"({"op":"console"})");
  owner.ask(R"({"op":"console","owner":true})");
  REQUIRE(other.sees("ok"));
  REQUIRE(owner.sees("ok"));
  other.channel.close();
  REQUIRE(served.until([&] { return other.ended; }));
  CHECK_FALSE(served.owner_gone);
  owner.channel.close();
  CHECK(served.until([&] { return served.owner_gone; }));
}

TEST_CASE("control: a console that does not read loses lines with a count, and others lose none",
          "[control]") {
  Served served(100'000);
  Peer slow(served, false);
  Peer quick(served);
  slow.ask(R"({"op":"console"})");
  quick.ask(R"({"op":"console"})");
  REQUIRE(quick.sees("ok"));
  const std::string line(999, 'x');
  for (int i = 0; i < 2000; ++i) {
    served.server->console(line + "\n");
    if (i % 50 == 0)
      served.until([&] { return quick.frames.size() > static_cast<std::size_t>(i); });
  }
  REQUIRE(served.until([&] { return quick.frames.size() == 2001; }));
  served.group.spawn(slow.read());
  REQUIRE(slow.sees(line));
  served.until([&] { return false; }, 200ms);
  served.server->console("last\n");
  REQUIRE(slow.sees("last\n"));
  const std::string got = slow.text();
  CHECK(got.find(" bytes were not shown here") != std::string::npos);
  CHECK(got.size() < 1'000'000);
}

TEST_CASE("control: garbage on the socket closes that connection only", "[control]") {
  Served served;
  Peer good(served);
  Peer bad(served);
  bad.channel.send_bytes(std::string("\xff\xff\xff\xff garbage"));
  REQUIRE(served.until([&] { return bad.closed; }));
  good.ask(R"({"op":"status"})");
  CHECK(good.sees("you said"));
}

TEST_CASE("control: a socket that somebody has removed is made again", "[control]") {
  Served served;
  fs::remove(served.dir / "control");
  REQUIRE(served.until([&] { return fs::exists(served.dir / "control"); }));
  Peer peer(served);
  peer.ask(R"({"op":"status"})");
  CHECK(peer.sees("you said"));
}

TEST_CASE("control: a dead supervisor's socket is replaced, a living one's is not", "[control]") {
  Served served;
  ControlServer::Options options;
  ControlServer second(served.context.get_executor(), options, Served::echo);
  const auto listening = second.listen(served.dir / "control");
  REQUIRE_FALSE(listening);
  CHECK(listening.error().kind == ErrorKind::kDenied);

  const std::string path = served.dir / "dead";
  {
    io::asio::local::stream_protocol::acceptor dead(
        served.context, io::asio::local::stream_protocol::endpoint(path));
  }
  REQUIRE(fs::exists(path));
  ControlServer third(served.context.get_executor(), options, Served::echo);
  CHECK(third.listen(path));
}
