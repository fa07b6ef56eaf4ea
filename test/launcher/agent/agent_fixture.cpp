#include "test/launcher/agent/agent_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/backend/lines_stream.h"

namespace dt::test {
namespace fs = std::filesystem;

namespace {

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<pid_t> processes_where(const std::function<bool(const fs::path&)>& wanted) {
  std::vector<pid_t> found;
  std::error_code ec;
  for (fs::directory_iterator at("/proc", ec), end; at != end; at.increment(ec)) {
    const std::string name = at->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (wanted(at->path())) found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace

Link::Link(io::asio::io_context& context, std::unique_ptr<io::ByteStream> stream)
    : context_(context),
      channel_(std::make_unique<io::FrameChannel>(context.get_executor(), std::move(stream))),
      tasks_(context.get_executor()) {
  tasks_.spawn(read_all());
  tasks_.spawn(write_all());
}

Link::~Link() {
  close();
  context_.restart();
  while (!tasks_.idle()) context_.run_one();
}

void Link::close() {
  channel_->close();
  tasks_.cancel();
}

io::awaitable<void> Link::read_all() {
  for (;;) {
    while (!reading) co_await io::sleep_for(std::chrono::milliseconds(5));
    auto frame = co_await channel_->receive();
    if (!frame) {
      ended = true;
      end_reason = frame.error().message;
      channel_->close();
      co_return;
    }
    take(*frame);
  }
}

io::awaitable<void> Link::write_all() { co_await channel_->write_loop(); }

void Link::take(const wire::Frame& frame) {
  const auto as = [&frame]<class M>(M) { return wire::parse<M>(frame.body).value(); };
  switch (frame.type) {
    case Beat::kType:
      ++beats;
      return;
    case Output::kType: {
      const auto output = as(Output());
      (output.is_stderr ? err : out)[output.process] += output.bytes;
      lost[output.process] += output.lost_before;
      if (output.lost_before > 0) why_lost[output.process] = output.why_lost;
      std::uint64_t& next = received[output.process];
      if (output.offset != next + output.lost_before)
        gaps.push_back(fmt::format("{} -> {}", next, output.offset));
      next = output.offset + output.bytes.size();
      if (exits.contains(output.process)) output_after_exit = true;
      return;
    }
    case AgentState::kType:
      states.push_back(as(AgentState()));
      for (const auto& report : states.back().processes)
        if (report.exit) exits[report.process].push_back(*report.exit);
      break;
    case Refused::kType:
      refusals.push_back(as(Refused()));
      break;
    case ProcessStarted::kType: {
      const auto it = as(ProcessStarted());
      received.try_emplace(it.process, 0);
      started[it.process].push_back(it.pid);
      break;
    }
    case ProcessFailed::kType: {
      const auto it = as(ProcessFailed());
      failures[it.process].push_back(it.why);
      break;
    }
    case ProcessExited::kType: {
      const auto it = as(ProcessExited());
      exits[it.process].push_back(it.status);
      break;
    }
    case FromProcess::kType:
      said.push_back(as(FromProcess()));
      break;
    default:
      break;
  }
  frames.push_back(frame);
}

Site::Site() {
  char name[] = "/tmp/dtagent-test-XXXXXX";
  folder = ::mkdtemp(name);
  job = "job" + fs::path(folder).filename().string().substr(13);
  ::setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
}

Site::~Site() {
  for (const pid_t pid : processes_with(job)) ::kill(pid, SIGKILL);
  for (const pid_t pid : marked()) ::kill(pid, SIGKILL);
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

std::unique_ptr<Link> Site::attach(std::uint64_t term, const std::string& host,
                                   std::vector<std::string> more, const Link* before) {
  std::vector<std::string> argv = {"dtagent", "--attach", "--job", job, "--host", host};
  argv.insert(argv.end(), more.begin(), more.end());
  launcher::LocalBackend backend(program);
  std::unique_ptr<io::ByteStream> stream;
  bool done = false;
  const auto opened = [&](std::exception_ptr error,
                          Result<std::unique_ptr<io::ByteStream>> result) {
    if (error) std::rethrow_exception(error);
    stream = std::move(result.value());
    done = true;
  };
  io::asio::co_spawn(context, backend.open(Host(), argv), opened);
  wait([&] { return done; });
  if (std::find(more.begin(), more.end(), "--lines") != more.end())
    stream = launcher::lines_stream(std::move(stream));
  auto link = std::make_unique<Link>(context, std::move(stream));
  if (term != 0) {
    AgentHello hello;
    hello.job = job;
    hello.host = host;
    hello.term = Term(term);
    hello.orphan_timeout_ms = orphan_timeout_ms;
    hello.beat_ms = beat_ms;
    if (before) {
      hello.received.assign(before->received.begin(), before->received.end());
      link->received = before->received;
    }
    link->send(hello);
    if (room > 0) link->send(OutputRoom{room});
  }
  return link;
}

bool Site::wait(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  context.restart();
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    context.restart();
    context.run_one_for(std::chrono::milliseconds(10));
  }
  return true;
}

std::string Site::socket() const {
  std::error_code ec;
  for (const auto& entry : fs::recursive_directory_iterator(folder, ec))
    if (entry.is_socket()) return entry.path().string();
  return {};
}

std::vector<pid_t> Site::marked() const {
  const std::string mark = "DT_MARK=" + job + "/";
  return processes_where([&](const fs::path& process) {
    return slurp(process / "environ").find(mark) != std::string::npos;
  });
}

pid_t Site::agent_pid() const {
  std::vector<pid_t> found;
  for (const pid_t pid : processes_with(job)) {
    const fs::path process = fs::path("/proc") / std::to_string(pid);
    const bool daemon = slurp(process / "cmdline").find("--daemon") != std::string::npos;
    if (daemon && slurp(process / "comm") == "dtagent\n") found.push_back(pid);
  }
  // A newly forked guard still looks like the agent: then there are two.
  return found.size() == 1 ? found[0] : 0;
}

pid_t Site::guard_pid() const {
  for (const pid_t pid : processes_with(job))
    if (slurp(fs::path("/proc") / std::to_string(pid) / "comm") == "dtagent-guard\n") return pid;
  return 0;
}

pid_t Site::agent() {
  pid_t found = 0;
  wait([&] { return (found = agent_pid()) != 0; });
  return found;
}

pid_t Site::guard() {
  pid_t found = 0;
  wait([&] { return (found = guard_pid()) != 0; });
  return found;
}

StartProcess shell(ProcessId id, std::string script) {
  StartProcess start;
  start.process = id;
  start.argv = {"/bin/sh", "-c", std::move(script)};
  start.cwd = "/";
  return start;
}

bool alive(pid_t pid) {
  const std::string stat = slurp(fs::path("/proc") / std::to_string(pid) / "stat");
  const std::size_t close = stat.rfind(')');
  return close != std::string::npos && stat[close + 2] != 'Z' && stat[close + 2] != 'X';
}

pid_t parent_of(pid_t pid) {
  const std::string stat = slurp(fs::path("/proc") / std::to_string(pid) / "stat");
  const std::size_t close = stat.rfind(')');
  return close == std::string::npos ? 0 : std::stoi(stat.substr(close + 4));
}

std::vector<pid_t> processes_with(const std::string& text) {
  return processes_where([&](const fs::path& process) {
    return slurp(process / "cmdline").find(text) != std::string::npos;
  });
}

pid_t pid_in(Site& site, const std::string& name) {
  pid_t pid = 0;
  site.wait([&] {
    std::ifstream file(site.folder + "/" + name);
    std::string line;
    if (std::getline(file, line) && !file.eof()) pid = std::stoi(line);
    return pid != 0;
  });
  return pid;
}

bool exited(const Link& link, std::uint32_t id) { return link.exits.contains(worker(id)); }

StopProcess stop_of(std::uint32_t id, std::uint32_t grace_ms) {
  StopProcess stop;
  stop.process = worker(id);
  stop.grace_ms = grace_ms;
  return stop;
}

AckExit ack_of(std::uint32_t id) {
  AckExit ack;
  ack.process = worker(id);
  return ack;
}

const ProcessReport* report_of(const AgentState& state, std::uint32_t id) {
  for (const auto& report : state.processes)
    if (report.process == worker(id)) return &report;
  return nullptr;
}

std::unique_ptr<Link> connect_to(Site& site, const std::string& path) {
  io::UnixSocket socket(site.context);
  socket.connect(io::asio::local::stream_protocol::endpoint(path));
  return std::make_unique<Link>(site.context, io::unix_stream(std::move(socket)));
}

}  // namespace dt::test
