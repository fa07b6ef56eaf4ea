#include <elf.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "io/within.h"
#include "launcher/backend/bundle.h"
#include "test/launcher/backend/ssh/ssh_fixture.h"

using namespace dt;
using namespace dt::launcher;
using namespace dt::test;

TEST_CASE("ssh: a command's output, stderr and exit code come back", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  const auto result = client.run(sshd.host(), "cat; echo oops >&2; exit 7", "hello\n");
  INFO((result ? "" : result.error().message));
  REQUIRE(result);
  CHECK(result->out == "hello\n");
  CHECK(result->err == "oops");
  CHECK(result->exit_code == 7);
  // A signal is 128 + its number.
  const auto killed = client.run(sshd.host(), "kill -TERM $$");
  REQUIRE(killed);
  CHECK(killed->exit_code == 143);
}

TEST_CASE("ssh: commands survive quoting, whatever is in them", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  const auto result =
      client.run(sshd.host(), "printf '%s|' 'a b' \"c'd\" 'e\\f' '!' '$HOME' 'two\nlines' 'ä'");
  REQUIRE(result);
  CHECK(result->out == "a b|c'd|e\\f|!|$HOME|two\nlines|ä|");
}

TEST_CASE("ssh: stderr that comes before anybody takes it is whole", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  Exec* exec = client.backend.exec(sshd.host());
  auto stream =
      client.wait(exec->open(sshd.host(), "head -c 300000 /dev/zero >&2; echo .; head -n 1 >&2"));
  REQUIRE(stream);
  REQUIRE(client.wait(read_some(**stream, 1)));
  std::size_t seen = 0;
  (*stream)->on_stderr([&](std::string_view bytes) { seen += bytes.size(); });
  auto to_end = [&]() -> io::awaitable<Result<std::size_t>> {
    auto sent = co_await (*stream)->write("bye\n");
    if (!sent) co_return tl::unexpected(sent.error());
    std::array<char, 64> piece{};
    Result<std::size_t> n = 1;
    while (n && *n > 0) n = co_await (*stream)->read(piece);
    co_return n;
  };
  REQUIRE(client.wait(to_end()));
  CHECK(seen == 300'004);
}

TEST_CASE("ssh: twenty megabytes of any bytes go both ways at once", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  const std::string bytes = noise(20'000'000);
  auto stream =
      client.wait(launcher::start_command(*client.backend.exec(sshd.host()), sshd.host(), "cat"));
  REQUIRE(stream);
  std::string back;
  auto reader = [&]() -> io::awaitable<Result<int>> {
    auto text = co_await read_some(**stream, bytes.size());
    if (!text) co_return tl::unexpected(text.error());
    back = std::move(*text);
    co_return 0;
  };
  auto writer = [&]() -> io::awaitable<Result<int>> {
    auto sent = co_await (*stream)->write(bytes);
    if (!sent) co_return tl::unexpected(sent.error());
    co_return 0;
  };
  using namespace io::asio::experimental::awaitable_operators;
  auto both = [&]() -> io::awaitable<bool> {
    auto pair = reader() && writer();
    const auto [in, out] = co_await std::move(pair);
    co_return in.has_value() && out.has_value();
  };
  CHECK(client.wait(both()));
  CHECK(back == bytes);
}

TEST_CASE("ssh: a reader that pauses holds the sender back and loses nothing", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  auto stream =
      client.wait(launcher::start_command(*client.backend.exec(sshd.host()), sshd.host(),
                                          "head -c 8000000 /dev/zero | tr '\\0' x; echo end"));
  REQUIRE(stream);
  client.context.restart();
  client.context.run_for(500ms);  // the loop runs, no coroutine reads
  const auto text = client.wait(read_all(**stream));
  REQUIRE(text);
  CHECK(text->size() == 8'000'004);
  CHECK(text->substr(text->size() - 4) == "end\n");
}

TEST_CASE("ssh: the bundle is copied once, and the agent gets its words intact", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options(), fake_bundle(sshd));
  const std::vector<std::string> argv = {"dtagent", "--job", "it's a job", "--host", "10.0.0.1"};
  for (int round = 0; round < 2; ++round) {
    auto stream = client.wait(client.backend.open(sshd.host(), argv));
    INFO((stream ? "" : stream.error().message));
    REQUIRE(stream);
    const std::string greeting = "<--job><it's a job><--host><10.0.0.1>";
    CHECK(*client.wait(read_some(**stream, greeting.size())) == greeting);
    REQUIRE(client.wait((*stream)->write("ping")));
    CHECK(*client.wait(read_some(**stream, 4)) == "ping");
  }
  CHECK(count(client.log.all(), "copying the agent") == 1);
  // Complete and executable, without leftovers of the copy.
  std::vector<std::string> found;
  for (const auto& one : std::filesystem::recursive_directory_iterator(sshd.cache()))
    if (one.is_regular_file() && one.path().filename().string()[0] != '.' &&
        ::access(one.path().c_str(), X_OK) == 0)
      found.push_back(one.path().filename());
  std::sort(found.begin(), found.end());
  CHECK(found == std::vector<std::string>{"dtagent", "dtserver"});
  CHECK(std::distance(std::filesystem::directory_iterator(sshd.cache() + "/dtlaunch"), {}) == 1);
  CHECK(eventually(10, [&] { return sshd.connections() == 1; }));
}

TEST_CASE("ssh: many copy the bundle to one home at once and all get their agent", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options(), fake_bundle(sshd));
  int good = 0;
  io::TaskGroup group(client.context.get_executor());
  auto one = [&](int i) -> io::awaitable<void> {
    std::vector<std::string> argv = {"dtagent", "x"};
    auto stream = co_await client.backend.open(sshd.host(i), std::move(argv));
    if (!stream) co_return;
    auto greeting = co_await read_some(**stream, 3);
    if (greeting && *greeting == "<x>") ++good;
  };
  for (int i = 1; i <= 6; ++i) group.spawn(one(i));
  client.finish(group);
  CHECK(good == 6);
  CHECK(std::distance(std::filesystem::directory_iterator(sshd.cache() + "/dtlaunch"), {}) == 1);
}

TEST_CASE("ssh: hosts that share a home wait for their turn and find what another one brought",
          "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  SshLimits limits;
  limits.bring_up.copies = 1;
  Client client(sshd.options(), fake_bundle(sshd), limits);
  int good = 0;
  io::TaskGroup group(client.context.get_executor());
  auto one = [&](int i) -> io::awaitable<void> {
    std::vector<std::string> argv = {"dtagent"};
    auto stream = co_await client.backend.open(sshd.host(i), std::move(argv));
    if (stream) ++good;
  };
  for (int i = 1; i <= 6; ++i) group.spawn(one(i));
  client.finish(group);
  CHECK(good == 6);
  CHECK(count(client.log.all(), "copying the agent") == 1);
}

TEST_CASE("ssh: what another bundle has is not sent again, and unused bundles go", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const auto files = fake_bundle(sshd);
  const auto open = [&](Client& client) {
    const auto stream = client.wait(client.backend.open(sshd.host(), {"dtagent"}));
    INFO((stream ? "" : stream.error().message));
    REQUIRE(stream);
  };
  const std::string folder = sshd.cache() + "/dtlaunch";
  const auto make = [&](const std::string& name, std::chrono::hours age) {
    const std::string made = folder + "/" + name;
    std::filesystem::create_directories(made);
    write_file(made + "/dtserver", "old");
    std::filesystem::last_write_time(made, std::filesystem::file_time_type::clock::now() - age);
    return made;
  };
  const std::string bundle(32, 'a');
  const std::string unused = make(bundle, 49h);
  const std::string used = make(std::string(32, 'b'), 47h);
  const std::string broken = make(bundle + ".0123456789abcdef", 2h);
  const std::string copying = make(bundle + ".fedcba9876543210", 0h);
  const std::string foreign = make("a folder of somebody else's", 1000h);
  Client first(sshd.options(), files);
  open(first);
  CHECK(contains(first.log.all(), "copying the agent (2 of 2 files"));
  CHECK_FALSE(std::filesystem::exists(unused));
  CHECK_FALSE(std::filesystem::exists(broken));
  for (const std::string& kept : {used, copying, foreign}) CHECK(std::filesystem::exists(kept));
  // A new agent; the server is the same.
  write_file(files[0], read_file(files[0]) + "# newer\n", 0700);
  Client second(sshd.options(), files);
  open(second);
  CHECK(contains(second.log.all(), "copying the agent (1 of 2 files"));
  std::size_t whole = 0;
  for (const auto& one : std::filesystem::recursive_directory_iterator(folder))
    if (one.path().filename() == "dtserver" && read_file(one.path()) == noise(300'000)) ++whole;
  CHECK(whole == 2);
}

TEST_CASE("ssh: a copy that breaks off leaves nothing behind", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  const auto bundle = load_bundle(fake_bundle(sshd));
  REQUIRE(bundle);
  const auto packed = pack_bundle(**bundle);
  REQUIRE(packed);
  const std::string whole = (*packed)[0] + (*packed)[1];
  const std::string script = bundle_copy_script(
      **bundle, {{0, (*packed)[0].size()}, {1, (*packed)[1].size()}}, "0123456789abcdef");
  const auto half = client.run(sshd.host(), script, whole.substr(0, whole.size() / 2));
  REQUIRE(half);
  CHECK(half->exit_code == 1);
  CHECK(std::filesystem::is_empty(sshd.cache() + "/dtlaunch"));
  const auto all = client.run(sshd.host(), script, whole);
  REQUIRE(all);
  CHECK(all->exit_code == 0);
  CHECK_FALSE(std::filesystem::is_empty(sshd.cache() + "/dtlaunch"));
}

TEST_CASE("ssh: this build's programs reach a host in six megabytes, and run there", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const std::string bin = DT_BIN;
  {
    Client client(sshd.options(), {bin + "/dtagent", bin + "/dtserver", bin + "/dtgpucheck"});
    const auto stream = client.wait(client.backend.open(sshd.host(), {"dtserver", "--version"}));
    INFO((stream ? "" : stream.error().message));
    REQUIRE(stream);
    CHECK(contains(*client.wait(read_all(**stream)), "dtserver "));
    client.backend.disconnect(sshd.host());
  }
  const std::string received = "received ";
  REQUIRE(eventually(20, [&] { return contains(sshd.log(), "Transferred: sent"); }));
  const std::string log = sshd.log();
  const std::size_t bytes =
      std::stoul(log.substr(log.find(received, log.find("Transferred: sent")) + received.size()));
  INFO("sshd received " << bytes << " bytes");
  CHECK(bytes > 100'000);
  if (DT_SMALL_PROGRAMS) CHECK(bytes <= 6'000'000);
}

TEST_CASE("ssh: an agent that fails ends its stream with its own words", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const std::string program = sshd.dir() + "/dtagent";
  test::write_file(program, "#!/bin/sh\necho 'no agent for job j' >&2\nexit 3\n", 0700);
  Client client(sshd.options(), {program});
  auto stream = client.wait(client.backend.open(sshd.host(), {"dtagent"}));
  REQUIRE(stream);
  const auto end = client.wait(read_all(**stream));
  REQUIRE_FALSE(end);
  CHECK(end.error().kind == ErrorKind::kUnavailable);
  CHECK(contains(end.error().message, "no agent for job j"));
}

TEST_CASE("ssh: a noisy login shell does not confuse the start of the agent", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd({.max_startups = "1000",
                   .max_sessions = "10",
                   .more = {"ForceCommand echo welcome to the machine; eval "
                            "\"$SSH_ORIGINAL_COMMAND\""}});
  Client client(sshd.options(), fake_bundle(sshd));
  auto stream = client.wait(client.backend.open(sshd.host(), {"dtagent", "y"}));
  INFO((stream ? "" : stream.error().message));
  REQUIRE(stream);
  CHECK(*client.wait(read_some(**stream, 3)) == "<y>");
}

TEST_CASE("ssh: closing a stream ends a read that waits on it", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  auto stream = client.wait(
      launcher::start_command(*client.backend.exec(sshd.host()), sshd.host(), "sleep 100"));
  REQUIRE(stream);
  io::asio::steady_timer timer(client.context, 50ms);
  timer.async_wait([&](const boost::system::error_code&) { (*stream)->close(); });
  const auto end = client.wait(read_all(**stream));
  REQUIRE_FALSE(end);
  CHECK(end.error().kind == ErrorKind::kClosed);
}

TEST_CASE("ssh: beyond MaxSessions a command goes over another connection, the first one goes on",
          "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd({.max_startups = "1000", .max_sessions = "1", .more = {}});
  Client client(sshd.options());
  auto stream =
      client.wait(launcher::start_command(*client.backend.exec(sshd.host()), sshd.host(), "cat"));
  REQUIRE(stream);
  for (int i = 0; i < 2; ++i) {
    const auto second = client.run(sshd.host(), "echo second");
    INFO((second ? "" : second.error().message));
    CHECK((second && second->out == "second\n"));
  }
  REQUIRE(client.wait((*stream)->write("still here")));
  const auto back = client.wait(read_some(**stream, 10));
  CHECK((back && *back == "still here"));
  CHECK(eventually(10, [&] { return sshd.connections() == 2; }));
}

TEST_CASE("ssh: where no command may run at all, that is the error", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd({.max_startups = "1000", .max_sessions = "0", .more = {}});
  Client client(sshd.options());
  const auto result = client.run(sshd.host(), "true");
  REQUIRE_FALSE(result);
  CHECK(result.error().kind == ErrorKind::kDenied);
  CHECK(contains(result.error().message, "exec: sshd refused to run a command"));
}

TEST_CASE("ssh: a host of another architecture is told by name, with both", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  utsname here{};
  REQUIRE(::uname(&here) == 0);
  const bool other_is_arm = std::string(here.machine) != "aarch64";
  // The part of a program that determines its machine.
  const std::string loader = "/lib/ld-of-another-machine.so.1";
  Elf64_Ehdr head{};
  std::copy_n(ELFMAG, SELFMAG, head.e_ident);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_ident[EI_DATA] = ELFDATA2LSB;
  head.e_machine = other_is_arm ? EM_AARCH64 : EM_X86_64;
  head.e_phoff = sizeof head;
  head.e_phentsize = sizeof(Elf64_Phdr);
  head.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_type = PT_INTERP;
  segment.p_offset = sizeof head + sizeof segment;
  segment.p_filesz = loader.size() + 1;
  std::string program(reinterpret_cast<const char*>(&head), sizeof head);
  program.append(reinterpret_cast<const char*>(&segment), sizeof segment);
  program.append(loader.c_str(), loader.size() + 1);
  write_file(sshd.dir() + "/dtagent", program, 0700);
  Client client(sshd.options(), {sshd.dir() + "/dtagent"});
  const auto stream = client.wait(client.backend.open(sshd.host(), {"dtagent"}));
  REQUIRE_FALSE(stream);
  INFO(stream.error().message);
  CHECK(stream.error().kind == ErrorKind::kInvalid);
  CHECK(contains(stream.error().message, to_string(sshd.host()) + ": "));
  CHECK(contains(stream.error().message, here.machine));
  CHECK(contains(stream.error().message, other_is_arm ? "aarch64" : "x86_64"));
  CHECK_FALSE(std::filesystem::exists(sshd.cache() + "/dtlaunch"));
}
