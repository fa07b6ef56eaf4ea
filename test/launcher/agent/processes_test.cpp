#include "launcher/agent/processes.h"

#include "test/support/catch.h"

using namespace dt;
using launcher::Process;
using launcher::Processes;

namespace {

ProcessId worker(std::uint32_t number) { return {Role::kWorker, number}; }

struct Table {
  launcher::ProcessPtr add(std::uint32_t number) {
    auto process = std::make_shared<Process>(context.get_executor(), worker(number));
    processes.add(process);
    return process;
  }
  io::asio::io_context context;
  Processes processes;
};

}  // namespace

TEST_CASE("processes: an acknowledged exit stays known, and no other is forgotten", "[launcher]") {
  Table table;
  const auto process = table.add(1);
  table.processes.acknowledge(worker(1));
  CHECK(table.processes.find(worker(1)) == process);
  CHECK_FALSE(table.processes.all_ended());
  process->fail_start("no such file");
  CHECK(table.processes.all_ended());
  table.processes.acknowledge(worker(1));
  CHECK_FALSE(table.processes.find(worker(1)));
  REQUIRE(table.processes.acknowledged(worker(1)));
  CHECK(table.processes.acknowledged(worker(1))->code == 126);
}

TEST_CASE("processes: only its token makes a connection a process's own", "[launcher]") {
  Table table;
  const auto first = table.add(1);
  const auto second = table.add(2);
  Identify identify;
  identify.process = worker(1);
  identify.token = first->token();
  CHECK(table.processes.authenticate(identify) == first);
  identify.token = second->token();
  CHECK_FALSE(table.processes.authenticate(identify));
  identify.process = worker(3);
  CHECK_FALSE(table.processes.authenticate(identify));
}

TEST_CASE("processes: each one's turn comes after the last", "[launcher]") {
  Table table;
  CHECK(table.processes.after(worker(1)) == table.processes.end());
  table.add(1);
  table.add(3);
  CHECK(table.processes.after(worker(1))->first == worker(3));
  CHECK(table.processes.after(worker(2))->first == worker(3));
  CHECK(table.processes.after(worker(3))->first == worker(1));
}

TEST_CASE("processes: all is sent when no output and no exit waits", "[launcher]") {
  Table table;
  const auto process = table.add(1);
  CHECK_FALSE(table.processes.all_sent());
  process->exit_sent = true;
  CHECK(table.processes.all_sent());
  process->output.spool.push(false, "x");
  CHECK_FALSE(table.processes.all_sent());
}
