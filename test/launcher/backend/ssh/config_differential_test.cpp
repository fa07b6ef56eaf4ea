/// Our reader of ssh_config beside OpenSSH's own client, on configs from a grammar: `ssh -G` prints
/// the settings, `ssh -v` the files that it would use (-G leaves those as written) and the command
/// of a proxy. No connection is made. A seed of one's own: DT_SEED; how many: DT_CONFIGS.

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>

#include "launcher/backend/ssh/config.h"
#include "test/support/catch.h"
#include "test/support/sshd.h"

using namespace dt;
using namespace dt::launcher;

namespace {

using Words = std::vector<std::string>;

/// ssh -v says so of a connection that a proxy which ends at once should have made: it has accepted
/// the config.
constexpr const char* kReached = "kex_exchange_identification";

/// Text by the grammar. What OpenSSH refuses is rare, so that most configs are compared in full.
class Grammar {
 public:
  /// `prefix`: of the names of included files.
  Grammar(std::uint64_t seed, std::string folder, std::string prefix)
      : random_(seed), folder_(std::move(folder)), prefix_(std::move(prefix)) {}

  /// Lines, some of them an Include of further ones.
  std::string config(int depth) {
    std::string text;
    for (std::size_t lines = 2 + below(depth == 0 ? 14 : 5); lines > 0; --lines) {
      if (depth < 3 && one_in(10))
        text += line("Include", includes(depth + 1));
      else if (one_in(4))
        text += one_in(2) ? line("Host", hosts()) : line("Match", criteria());
      else
        text += setting();
    }
    return text;
  }
  [[nodiscard]] const std::string& included() const { return included_; }
  std::string name() { return any({"n1", "N2", "node7.lab", "10.0.0.7"}); }
  std::string given() { return any({"", "", "", "-l carol", "-p 2022", "-l bob -p 2023"}); }

 private:
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_);
  }
  bool one_in(std::size_t n) { return below(n) == 0; }
  std::string any(const Words& words) { return words[below(words.size())]; }

  std::string line(const std::string& keyword, const std::string& value) {
    std::string word = keyword;
    if (one_in(5)) word = lower_case(word);
    if (one_in(40)) word = '"' + word + '"';
    return any({"", "  ", "\t", " "}) + word + any({" ", " ", "=", " = ", "\t", "  ", "= "}) +
           value + any({"", "", "", " ", "\t", " # it said", " #\"x"}) + "\n" +
           any({"", "", "", "\n", "# a comment's\n", "  #x\n"});
  }

  std::string hosts() {
    std::string list;
    for (std::size_t n = 1 + below(3); n > 0; --n) {
      const std::string one = any({"n1", "n2", "N2", "n*", "*", "*", "node?.lab", "10.0.*", "other",
                                   "!n1", "!10.*", "\"n1\"", "'n*'", "?2", "n1.far.example"});
      list += (list.empty() ? "" : " ") + one;
    }
    return list;
  }

  std::string criteria() {
    std::string list;
    if (one_in(4))
      return any({"all", "all", "ALL", "!all", "host n1 all", one_in(9) ? "all host x" : "all"});
    for (std::size_t n = 1 + below(2); n > 0; --n) {
      const std::string what = any({"host", "host", "originalhost", "user", "localuser", "Host"});
      const bool is_user = what.ends_with("user");
      const std::string of =
          is_user ? any({"carol", "alice,bob", own_user_name(), "*", "!bob,*", "CAROL"})
                  : any({"n1", "N1,n2", "n*", "*", "*.lab,10.*", "!n1,*", "x.example", "\"n1\"",
                         "'n1'"});
      list +=
          (list.empty() ? "" : " ") + any({"", "", "!"}) + what + any({" ", " ", "=", " = "}) + of;
    }
    return list + (one_in(60) ? " host" : "");
  }

  /// As one argument: in quotes where it must be, and sometimes where it need not.
  std::string quoted(const std::string& text) {
    const bool has_blank = text.find(' ') != std::string::npos;
    const bool has_single = text.find('\'') != std::string::npos;
    if (one_in(80)) return '"' + text;
    if (has_single) return one_in(2) ? '"' + text + '"' : escaped(text);
    switch (below(has_blank ? 3 : 6)) {
      case 0:
        return '"' + text + '"';
      case 1:
        return '\'' + text + '\'';
      case 2:
        return escaped(text);
      case 3:
        return text.substr(0, 2) + '"' + text.substr(2) + '"';
      default:
        return text;
    }
  }
  static std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text)
      out += (c == ' ' || c == '\'' || c == '\\' ? "\\" : "") + std::string(1, c);
    return out;
  }

  std::string file() {
    if (one_in(12)) return any({"none", "NONE"});
    std::string path = any({"/k/", "/k/", "~/", "~root/", "${DT_K}/", "rel/"});
    if (one_in(80)) path = any({"~no-such-user/", "${DT_NOT_SET}/", "/k/%x/", "/k/${DT_K/"});
    for (std::size_t n = below(4); n > 0; --n)
      path += any({"%h",
                   "%n",
                   "%p",
                   "%r",
                   "%u",
                   "%k",
                   "%l",
                   "%L",
                   "%i",
                   "%d",
                   "%C",
                   "%%",
                   "a",
                   "b-c",
                   "x y",
                   "it's",
                   "#1",
                   "${DT_NAME}",
                   "${DT_PERCENT}",
                   "$DT_K",
                   "\\z",
                   "="});
    if (one_in(120)) path += "%";
    return quoted(path);
  }

  std::string setting() {
    const auto bad = [this](const std::string& good, const std::string& wrong) {
      return one_in(60) ? wrong : good;
    };
    switch (below(18)) {
      case 0:
      case 1:
      case 2:
        return line("IdentityFile", file());
      case 3:
        return line("CertificateFile", file());
      case 4:
      case 5:
        return line("UserKnownHostsFile", file() + (one_in(4) ? " " + file() : ""));
      case 6:
        // An open quote would make the name "none #x" of it, which -G prints as two names.
        return line("GlobalKnownHostsFile", one_in(4)
                                                ? any({"none", "'none'", "\"none\"", "no\"ne\""})
                                                : quoted(any({"/g/%h", "~/g", "/g/${DT_K}"})));
      case 7:
        return line("IdentityAgent",
                    one_in(3) ? any({"none", "SSH_AUTH_SOCK", "$DT_K", "$DT_NONE"}) : file());
      case 8:
        return line(
            "HostName",
            bad(quoted(any({"10.0.0.9", "%h.far.example", "X.Example", "%h", "h%%h"})), "%n"));
      case 9:
        return line("User", bad(quoted(any({"alice", "bob", "an na"})), "two words"));
      case 10:
        return line("Port",
                    bad(quoted(any({"22", "2200", "65535"})), any({"0", "70000", "22x", "\"\""})));
      case 11:
        return line("HostKeyAlias", quoted(any({"fleet", "F%h", "al ias"})));
      case 12:
        return line("IdentitiesOnly", bad(any({"yes", "no", "true", "FALSE"}), "perhaps"));
      case 13:
        return line("StrictHostKeyChecking",
                    bad(any({"yes", "no", "ask", "accept-new", "off"}), "maybe"));
      case 14:
        return one_in(2) ? line("ServerAliveInterval", bad(any({"15", "1m30s", "2h", "1w", "90S"}),
                                                           any({"x", "5y", "9999999999"})))
                         : line("ServerAliveCountMax", bad(any({"3", "7"}), any({"-1", "3s"})));
      case 15:
        return line("ProxyCommand", any({"true %h %p", "true \"%n\" %r %k '%%'", "none",
                                         "true =%h # x", bad("true x", "true %d")}));
      case 16:
        // "none" with a comment behind it would be a host to OpenSSH 9.2.
        if (one_in(5)) return "ProxyJump none\n";
        return line("ProxyJump", any({"j1", "al@j1:22", "j1,bob@j2:2022", "j1 # first"}));
      default:
        return any(
            {line("ForwardAgent", any({"yes", "no", "True"})),
             line("Compression", any({"yes", "no"})),
             line("RekeyLimit", any({"1G 1h", "default none", "500M", "default 10m", "64K"})),
             line("Ciphers", any({"aes128-ctr", "aes256-ctr,aes128-ctr"})),
             line("SendEnv", bad("LANG LC_*", "LANG A=b")),
             line("SetEnv", bad("A=b LC_X=", "A=b LANG"))});
    }
  }

  std::string includes(int depth) {
    std::string list;
    for (std::size_t n = 1 + below(2); n > 0; --n) {
      const std::string leaf = fmt::format("{}{}", prefix_, files_++);
      const std::string text = config(depth);
      test::write_file(folder_ + "/.ssh/" + leaf, text);
      included_ += fmt::format("--- {}\n{}", leaf, text);
      // Relative ones are in ~/.ssh; the pattern is that file's alone.
      list += (list.empty() ? "" : " ") + any({"~/.ssh/" + leaf, leaf, folder_ + "/.ssh/" + leaf,
                                               leaf + "*", "\"" + leaf + "\"", "not-there*"});
    }
    return list;
  }

  std::mt19937_64 random_;
  std::string folder_;
  std::string prefix_;
  std::string included_;
  int files_ = 1000;  // as many digits: no name begins another
};

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one);) {
    if (one.ends_with('\r')) one.pop_back();
    lines.push_back(one);
  }
  return lines;
}

/// What stands behind `key` in each of the lines that begin with it, up to `end`.
Words after(const std::string& text, const std::string& key, const std::string& end = "") {
  Words found;
  for (const std::string& one : lines_of(text))
    if (one.starts_with(key))
      found.push_back(one.substr(key.size(), end.empty() ? end.npos : one.rfind(end) - key.size()));
  return found;
}

/// OpenSSH takes ~ from the password file, we from $HOME.
std::string at_home(std::string text, const std::string& home) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  replace(::getpwuid(::getuid())->pw_dir, home);
  replace(R"(\\)", R"(\)");  // its log has each of them twice
  return text;
}

std::string yes(bool is) { return is ? "yes" : "no"; }

struct Case {
  std::string file;
  std::string name;
  std::string given;  ///< Words of the command line.
  std::string config;
};

/// How our reading differs from OpenSSH's; empty: not at all.
std::string difference(const Case& one, const std::string& defaults, const std::string& home) {
  std::string user;
  std::uint16_t port = 0;
  std::istringstream given(one.given);
  for (std::string flag, value; given >> flag >> value;)
    flag == "-l" ? user = value : (port = static_cast<std::uint16_t>(std::stoi(value)), value);
  const SshHostConfig ours = read_ssh_config({one.file}, one.name, user, port);
  const std::string printed = at_home(test::read_file(one.file + ".g"), home);
  const std::string verbose = at_home(test::read_file(one.file + ".v"), home);
  const bool is_accepted = verbose.find(kReached) != std::string::npos;
  if (!ours.undecided.empty()) return "undecided: " + ours.undecided;
  if (ours.refused.find("differs between versions") != std::string::npos) return "";
  if (is_accepted != ours.refused.empty())
    return fmt::format("ssh {} it, we say: {}\n{}", is_accepted ? "accepts" : "refuses",
                       ours.refused, verbose);
  if (!is_accepted) return "";
  std::string found;
  const auto same = [&](const std::string& what, const std::string& we, const std::string& they) {
    const std::string mine = at_home(we, home);
    if (mine != they) found += fmt::format("{}: ours {}, theirs {}\n", what, mine, they);
  };
  const auto printed_as = [&](const std::string& key) {
    const Words all = after(printed, key + " ");
    return all.empty() ? std::string("-") : all.front();
  };
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  const auto hosts_files = [](const Words& files) {
    return files == Words{"/dev/null"} ? "none" : fmt::format("{}", fmt::join(files, " "));
  };
  same("hostname", ours.hostname, printed_as("hostname"));
  if (user.empty())
    same("user", ours.user.empty() ? own_user_name() : ours.user, printed_as("user"));
  if (port == 0) same("port", std::to_string(ours.port == 0 ? 22 : ours.port), printed_as("port"));
  same("alias", or_dash(ours.host_key_alias), printed_as("hostkeyalias"));
  same("only", yes(ours.identities_only), printed_as("identitiesonly"));
  const std::string forwards = printed_as("forwardagent");
  // An agent of its own is not forwarded: a warning says so.
  if (forwards == "yes" || forwards == "no") same("forward", yes(ours.forward_agent), forwards);
  same("compression", yes(ours.compression), printed_as("compression"));
  same("jump", or_dash(ours.proxy_jump), printed_as("proxyjump"));
  same("interval", fmt::format("{:.0f}", seconds(ours.alive_interval)),
       printed_as("serveraliveinterval"));
  same("rekey", fmt::format("{} {:.0f}", ours.rekey_bytes, seconds(ours.rekey_time)),
       printed_as("rekeylimit"));
  if (ours.alive_count_max != 0)
    same("count", std::to_string(ours.alive_count_max), printed_as("serveralivecountmax"));
  if (!ours.ciphers.empty()) same("ciphers", ours.ciphers, printed_as("ciphers"));
  if (!ours.user_known_hosts.empty())
    same("known hosts", hosts_files(ours.user_known_hosts), printed_as("userknownhostsfile"));
  // What -G has as written, or has expanded already, comes out of its answer alike.
  const SshHostConfig answer = read_openssh_answer(printed, defaults, one.name, user, port, {});
  same("answer's refusal", "", answer.refused);
  same("agent", or_dash(ours.identity_agent), or_dash(answer.identity_agent));
  same("answer's identities", fmt::format("{}", fmt::join(ours.identity_files, " ")),
       at_home(fmt::format("{}", fmt::join(answer.identity_files, " ")), home));
  same("answer's global known hosts", hosts_files(ours.global_known_hosts),
       hosts_files(answer.global_known_hosts));
  same("answer's command", ours.proxy_command, answer.proxy_command);
  if (ours.host_keys && answer.host_keys) CHECK(*ours.host_keys == *answer.host_keys);
  if (!ours.proxy_command.empty())
    same("command", ours.proxy_command,
         fmt::format("{}",
                     fmt::join(after(verbose, "debug1: Executing proxy command: exec "), "|")));
  Words identities;
  for (const std::string& file : ours.identity_files) {
    identities.push_back(file);
    if (ours.certificate_files.empty()) identities.push_back(file + "-cert");
  }
  if (ours.has_identities)
    same("identities", fmt::format("{}", fmt::join(identities, " ")),
         fmt::format("{}", fmt::join(after(verbose, "debug1: identity file ", " type "), " ")));
  same("certificates", fmt::format("{}", fmt::join(ours.certificate_files, " ")),
       fmt::format("{}", fmt::join(after(verbose, "debug1: certificate file ", " type "), " ")));
  return found;
}

}  // namespace

TEST_CASE("ssh config: OpenSSH's client reads the same in any config", "[ssh_config]") {
  // Others know further tokens and keywords.
  if (test::run_tool({"/bin/sh", "-c", "ssh -V 2>&1 || true"}).find("OpenSSH_9.2") ==
      std::string::npos) {
    WARN("SKIPPED: OpenSSH 9.2 is not installed");
    return;
  }
  const auto number = [](const char* name, std::uint64_t usual) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::stoull(value) : usual;
  };
  const bool is_nightly = std::getenv("DT_NIGHTLY") != nullptr;
  const std::uint64_t count = number("DT_CONFIGS", is_nightly ? 1000 : 500);
  const std::uint64_t seed = number("DT_SEED", is_nightly ? std::random_device{}() : 1);
  const test::TempDir folder;
  const std::string home = folder.path();
  std::filesystem::create_directory(home + "/.ssh");
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"HOME", home}, {"DT_K", "/var"}, {"DT_NAME", "x"}, {"DT_PERCENT", "p%h"}})
    ::setenv(name.c_str(), value.c_str(), 1);
  ::unsetenv("DT_NOT_SET");
  std::vector<Case> cases;
  std::string script =
      "cd \"$HOME\"; exec </dev/null; ssh -T -G -F none n >defaults\n"
      "one() { timeout 20 ssh -T -G -F $1 $3 $4 $5 $6 $2 >$1.g 2>/dev/null; proxy='-o "
      "ProxyCommand=true'\n"
      "grep -q '^proxycommand ' $1.g && proxy=\n"
      "timeout 20 ssh -T -v $proxy -F $1 $3 $4 $5 $6 $2 >$1.v 2>&1; }\n";
  for (std::uint64_t i = 0; i < count; ++i) {
    Case one{fmt::format("{}/c{}", home, i), "", "", ""};
    Grammar grammar(seed * 1'000'003 + i, home, fmt::format("c{}-", i));
    one.name = grammar.name();
    one.given = grammar.given();
    one.config = grammar.config(0);
    test::write_file(one.file, one.config);
    one.config += grammar.included();
    // Two at a time.
    script += fmt::format("one {} {} {} {}\n", one.file, one.name, one.given,
                          i % 2 == 0 ? "&" : "; wait");
    cases.push_back(std::move(one));
  }
  test::write_file(home + "/script", script + "wait\n");
  test::run_tool({"/bin/sh", home + "/script"});
  const std::string defaults = test::read_file(home + "/defaults");
  int refused = 0;
  for (const Case& one : cases) {
    const std::string differs = difference(one, defaults, home);
    INFO(fmt::format("DT_SEED={} {}: ssh -F {} {} {}\n{}", seed, one.file, one.config, one.given,
                     one.name, differs));
    CHECK(differs.empty());
    refused += test::read_file(one.file + ".v").find(kReached) == std::string::npos ? 1 : 0;
  }
  WARN(fmt::format("{} configs, {} of them refused", count, refused));
  CHECK(refused < static_cast<int>(count / 2));
}
