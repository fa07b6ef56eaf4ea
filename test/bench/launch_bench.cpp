/// Runs one command on many hosts at once with the ssh backend, and exits. launch_bench.sh compares
/// it with pdsh and clush.
///
///     launch_bench CONFIG PORT COMMAND HOST...
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "io/asio.h"
#include "io/log.h"
#include "io/task_group.h"
#include "launcher/backend/ssh/ssh.h"

int main(int argc, char** argv) {
  using namespace dt;
  if (argc < 5) {
    std::fputs("usage: launch_bench CONFIG PORT COMMAND HOST...\n", stderr);
    return 2;
  }
  const std::vector<std::string> words(argv + 1, argv + argc);
  io::asio::io_context context(1);
  io::FdLog log(2);
  io::SshOptions options;
  options.config_file = words[0];
  options.port = static_cast<std::uint16_t>(std::strtoul(words[1].c_str(), nullptr, 10));
  launcher::SshBackend backend(context.get_executor(), options, {}, log);
  io::TaskGroup group(context.get_executor());
  std::size_t failed = 0;
  std::size_t left = words.size() - 3;
  auto one = [&](std::string name) -> io::awaitable<void> {
    Host host;
    host.name = std::move(name);
    auto result = co_await backend.run(host, words[2], "", std::chrono::seconds(120));
    if (!result) log.error("{}", result.error().message);
    if (!result || result->exit_code != 0) ++failed;
    if (--left == 0) context.stop();
  };
  for (std::size_t i = 3; i < words.size(); ++i) group.spawn(one(words[i]));
  context.run();
  std::fflush(nullptr);
  std::_Exit(failed == 0 ? 0 : 1);
}
