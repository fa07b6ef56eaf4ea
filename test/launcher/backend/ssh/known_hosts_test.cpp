#include "launcher/backend/ssh/known_hosts.h"

#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>

#include "test/support/catch.h"
#include "test/support/sshd.h"

using namespace dt;
using namespace dt::launcher;

namespace {

const HostKey kEd{"ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIA"};
const HostKey kEdOther{"ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIB"};
const HostKey kRsa{"ssh-rsa", "AAAAB3NzaC1yc2EAAAADAQABAAAA"};

struct File {
  explicit File(const std::string& text) { write(text); }
  void write(const std::string& text) const { test::write_file(path(), text); }
  [[nodiscard]] std::string path() const { return dir / "known_hosts"; }
  [[nodiscard]] std::string text() const { return test::read_file(path()); }
  test::TempDir dir;
};

std::string line(const std::string& names, const HostKey& key) {
  return fmt::format("{} {} {} a comment\n", names, key.type, key.base64);
}

}  // namespace

TEST_CASE("known_hosts: names, lists, ports and case", "[known_hosts]") {
  const File file("# comment\r\n\n" + line("alpha,10.0.0.7", kEd) + line("[beta]:2222", kRsa));
  KnownHosts known({file.path()});
  CHECK(known.check("alpha", 22, kEd).verdict == KnownHosts::Verdict::kMatch);
  CHECK(known.check("ALPHA", 0, kEd).verdict == KnownHosts::Verdict::kMatch);
  CHECK(known.check("10.0.0.7", 22, kEd).verdict == KnownHosts::Verdict::kMatch);
  CHECK(known.check("alpha", 2222, kEd).verdict == KnownHosts::Verdict::kUnknown);
  CHECK(known.check("beta", 2222, kRsa).verdict == KnownHosts::Verdict::kMatch);
  CHECK(known.check("beta", 22, kRsa).verdict == KnownHosts::Verdict::kUnknown);
  CHECK(known.check("alph", 22, kEd).verdict == KnownHosts::Verdict::kUnknown);
}

TEST_CASE("known_hosts: a changed key names the line, a further line may still match",
          "[known_hosts]") {
  const File file(line("alpha", kRsa) + line("alpha", kEdOther) + line("beta", kEdOther) +
                  line("beta", kEd));
  KnownHosts known({file.path()});
  const auto changed = known.check("alpha", 22, kEd);
  CHECK(changed.verdict == KnownHosts::Verdict::kChanged);
  CHECK(changed.place == file.path() + ":2");
  CHECK(known.check("beta", 22, kEd).verdict == KnownHosts::Verdict::kMatch);
  CHECK(known.check("beta", 22, kRsa).verdict == KnownHosts::Verdict::kOtherType);
  CHECK(known.key_types("alpha", 22) == std::vector<std::string>{"ssh-rsa", "ssh-ed25519"});
}

TEST_CASE("known_hosts: wildcards and negation", "[known_hosts]") {
  const File file(line("node?,*.example.com,!bad.example.com", kEd));
  KnownHosts known({file.path()});
  CHECK(known.check("node7", 22, kEd).verdict == KnownHosts::Verdict::kMatch);
  CHECK(known.check("node12", 22, kEd).verdict == KnownHosts::Verdict::kUnknown);
  CHECK(known.check("a.b.example.com", 22, kEd).verdict == KnownHosts::Verdict::kMatch);
  CHECK(known.check("bad.example.com", 22, kEd).verdict == KnownHosts::Verdict::kUnknown);
}

TEST_CASE("known_hosts: a revoked key is refused wherever it stands, other keys are not",
          "[known_hosts]") {
  const File file(line("alpha", kEd) + line("alpha", kRsa) + line("@revoked *", kEd));
  KnownHosts known({file.path()});
  const auto revoked = known.check("alpha", 22, kEd);
  CHECK(revoked.verdict == KnownHosts::Verdict::kRevoked);
  CHECK(revoked.place == file.path() + ":3");
  CHECK(known.check("alpha", 22, kRsa).verdict == KnownHosts::Verdict::kMatch);
}

TEST_CASE("known_hosts: a certificate authority is not taken for a host's key", "[known_hosts]") {
  const File file(line("@cert-authority *.lab", kEd) + line("a.lab", kEdOther));
  KnownHosts known({file.path()});
  const auto unknown = known.check("b.lab", 22, kEd);
  CHECK(unknown.verdict == KnownHosts::Verdict::kAuthority);
  CHECK(unknown.place == file.path() + ":1");
  CHECK(known.key_types("b.lab", 22).empty());
  CHECK(known.check("b.elsewhere", 22, kEd).verdict == KnownHosts::Verdict::kUnknown);
  // The host's own key decides where there is one.
  CHECK(known.check("a.lab", 22, kEdOther).verdict == KnownHosts::Verdict::kMatch);
  CHECK(known.check("a.lab", 22, kEd).verdict == KnownHosts::Verdict::kChanged);
}

TEST_CASE("known_hosts: garbage lines are skipped and shift no line number", "[known_hosts]") {
  const File file(
      "one\n|1|broken ssh-ed25519 AAAA\n|1|bad base64!|== ssh-ed25519 AAAA\n@revoked\n" +
      line("alpha", kEdOther));
  KnownHosts known({file.path()});
  CHECK(known.check("alpha", 22, kEd).place == file.path() + ":5");
}

TEST_CASE("known_hosts: a file that changes is read again, a missing one is empty",
          "[known_hosts]") {
  const File file("");
  KnownHosts known({file.path(), file.dir / "none"});
  CHECK(known.check("alpha", 22, kEd).verdict == KnownHosts::Verdict::kUnknown);
  file.write(line("alpha", kEd));
  CHECK(known.check("alpha", 22, kEd).verdict == KnownHosts::Verdict::kMatch);
  std::filesystem::remove(file.path());
  CHECK(known.check("alpha", 22, kEd).verdict == KnownHosts::Verdict::kUnknown);
}

TEST_CASE("known_hosts: add appends one whole line, once, and makes the folder", "[known_hosts]") {
  const File file("no newline at the end");
  KnownHosts known({file.path()});
  REQUIRE(known.add("Alpha", 2222, kEd));
  REQUIRE(known.add("alpha", 2222, kEd));
  CHECK(file.text() ==
        fmt::format("no newline at the end\n[alpha]:2222 {} {}\n", kEd.type, kEd.base64));
  CHECK(known.check("alpha", 2222, kEd).verdict == KnownHosts::Verdict::kMatch);
  KnownHosts fresh({file.dir / "ssh/known_hosts"});
  REQUIRE(fresh.add("beta", 22, kRsa));
  CHECK(test::read_file(file.dir / "ssh/known_hosts") ==
        fmt::format("beta {} {}\n", kRsa.type, kRsa.base64));
  KnownHosts nowhere({"/proc/none/known_hosts"});
  CHECK_FALSE(nowhere.add("beta", 22, kRsa));
}

TEST_CASE("known_hosts: two processes that append at once lose no line", "[known_hosts]") {
  const File file("");
  const auto append = [&](const std::string& prefix) {
    KnownHosts known({file.path()});
    for (int i = 0; i < 200; ++i)
      if (!known.add(fmt::format("{}{}", prefix, i), 22, kEd)) return 1;
    return 0;
  };
  const pid_t child = ::fork();
  if (child == 0) ::_exit(append("child"));
  CHECK(append("parent") == 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  KnownHosts known({file.path()});
  for (int i = 0; i < 200; ++i) {
    CHECK(known.check(fmt::format("child{}", i), 22, kEd).verdict == KnownHosts::Verdict::kMatch);
    CHECK(known.check(fmt::format("parent{}", i), 22, kEd).verdict == KnownHosts::Verdict::kMatch);
  }
}

TEST_CASE("known_hosts: a thousand lookups in ten thousand hashed lines are quick",
          "[known_hosts]") {
  if (!test::Sshd::available()) {
    WARN("SKIPPED: ssh-keygen is not installed");
    return;
  }
  std::string text;
  const std::string real = "AAAAC3NzaC1lZDI1NTE5AAAAIPNnmJnPCuyGxqwJ0lPf1jCpJUmiTEcUbPNhWEbSgzwA";
  for (int i = 0; i < 10'000; ++i) text += fmt::format("host{} ssh-ed25519 {}\n", i, real);
  const File file(text);
  test::run_tool({"ssh-keygen", "-q", "-H", "-f", file.path()});
  REQUIRE(file.text().substr(0, 3) == "|1|");
  KnownHosts known({file.path()});
  const HostKey key{"ssh-ed25519", real};
  const std::clock_t begin = std::clock();  // of this process, whatever runs beside it
  for (int i = 0; i < 1000; ++i)
    REQUIRE(known.check(fmt::format("host{}", i * 10), 22, key).verdict ==
            KnownHosts::Verdict::kMatch);
  CHECK(known.check("host10000", 22, key).verdict == KnownHosts::Verdict::kUnknown);
  const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  // libssh needs 0.17 s for one.
  CHECK(took < 40.0);
}
