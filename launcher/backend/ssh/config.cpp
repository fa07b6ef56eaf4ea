#include "launcher/backend/ssh/config.h"

#include <glob.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/base/number.h"

namespace dt::launcher {
namespace {

constexpr int kMaxIncludes = 16;
/// Stand around the lines of an included file. A keyword of a file has no blank.
constexpr std::string_view kIncludeBegins = "include begins";
constexpr std::string_view kIncludeEnds = "include ends";
constexpr std::int64_t kYear = std::int64_t{365} * 86400;  ///< Seconds.

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// The words of a line, "quoted words" whole; an unquoted # begins a comment.
std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::size_t i = 0;
  while (i < text.size()) {
    if (text[i] == ' ' || text[i] == '\t') {
      ++i;
    } else if (text[i] == '#') {
      break;
    } else if (text[i] == '"') {
      const std::size_t end = text.find('"', i + 1);
      words.emplace_back(text.substr(i + 1, end == std::string_view::npos ? end : end - i - 1));
      i = end == std::string_view::npos ? text.size() : end + 1;
    } else {
      const std::size_t end = std::min(text.find_first_of(" \t", i), text.size());
      words.emplace_back(text.substr(i, end - i));
      i = end;
    }
  }
  return words;
}

bool is_yes(std::string_view word) {
  const std::string w = lower(word);
  return w == "yes" || w == "true";
}

/// Seconds, or with a unit: 90, 2m, 1h30m. A year at most.
Duration parse_time(std::string_view text) {
  std::int64_t total = 0;
  std::int64_t number = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      number = std::min<std::int64_t>(number * 10 + (c - '0'), 1'000'000'000);
      continue;
    }
    const std::int64_t unit = c == 'm' || c == 'M'   ? 60
                              : c == 'h' || c == 'H' ? 3600
                              : c == 'd' || c == 'D' ? 86400
                                                     : 1;
    total = std::min(total + number * unit, kYear);
    number = 0;
  }
  return std::chrono::seconds(std::min(total + number, kYear));
}

/// "ask" counts as strict: there is no one to ask.
std::optional<io::HostKeyPolicy> parse_host_keys(std::string_view text) {
  const std::string word = lower(text);
  if (word == "yes" || word == "true" || word == "ask") return io::HostKeyPolicy::kStrict;
  if (word == "accept-new") return io::HostKeyPolicy::kAcceptNew;
  if (word == "no" || word == "false" || word == "off") return io::HostKeyPolicy::kOff;
  return std::nullopt;
}

template <class Number>
Number leading_number(std::string_view text) {
  return take_number<Number>(text).value_or(0);
}

/// Keywords that are not honoured, and what that means for the user.
const std::map<std::string, std::string, std::less<>>& unsupported() {
  static const std::map<std::string, std::string, std::less<>> table = {
      {"bindaddress", "the system chooses it"},
      {"bindinterface", "the system chooses it"},
      {"certificatefile", "user certificates are not used"},
      {"connecttimeout", "use --ssh-connect-timeout"},
      {"controlmaster", "connections of our own are shared anyway"},
      {"controlpath", "connections of our own are shared anyway"},
      {"controlpersist", "connections of our own are shared anyway"},
      {"addressfamily", "every address of the name is tried"},
      {"canonicalizehostname", "write the full name in the hosts file"},
      {"canonicaldomains", "write the full name in the hosts file"},
      {"sendenv", "use --env"},
      {"setenv", "use --env"},
      {"connectionattempts", "failed hosts are retried anyway"},
      {"localforward", "nothing is forwarded"},
      {"remoteforward", "nothing is forwarded"},
      {"dynamicforward", "nothing is forwarded"},
      {"remotecommand", "it is not run"},
      {"pkcs11provider", "put the key into an ssh-agent"},
      {"securitykeyprovider", "put the key into an ssh-agent"},
      {"knownhostscommand", "use UserKnownHostsFile"},
      {"revokedhostkeys", "use @revoked lines in known_hosts"},
      {"proxyusefdpass", "the descriptor is not passed"},
  };
  return table;
}

}  // namespace

std::string expand_tokens(std::string_view text, std::string_view host, std::string_view original,
                          std::uint16_t port, std::string_view user) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    switch (text[++i]) {
      case '%':
        out += '%';
        break;
      case 'h':
        out += host;
        break;
      case 'n':
        out += original;
        break;
      case 'p':
        out += std::to_string(port == 0 ? 22 : port);
        break;
      case 'r':
        out += user;
        break;
      case 'u':
        out += own_user_name();
        break;
      case 'd':
        out += io::home_dir();
        break;
      case 'i':
        out += std::to_string(::getuid());
        break;
      default:
        out += '%';
        out += text[i];
    }
  }
  return out;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  // Backtracks to the last star only: linear in practice, never exponential.
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool patterns_match(const std::vector<std::string>& patterns, std::string_view text) {
  bool matched = false;
  for (const std::string& pattern : patterns) {
    const bool negated = !pattern.empty() && pattern.front() == '!';
    const auto body = std::string_view(pattern).substr(negated ? 1 : 0);
    if (!glob_match(lower(body), lower(text))) continue;
    if (negated) return false;
    matched = true;
  }
  return matched;
}

std::string own_user_name() {
  const passwd* entry = ::getpwuid(::getuid());
  return entry != nullptr ? entry->pw_name : std::to_string(::getuid());
}

std::string expand_home(std::string_view path) {
  if (path == "~" || path.substr(0, 2) == "~/") return io::home_dir() + std::string(path.substr(1));
  return std::string(path);
}

SshConfig::SshConfig(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    add_file(file, 0);
    // The next file starts outside of any Host block.
    lines_.push_back(Line{file, "host", {"*"}, "*", 0});
  }
}

SshConfig SshConfig::parse(std::string_view text, std::string_view file) {
  SshConfig config;
  config.add_text(text, std::string(file), 0);
  return config;
}

void SshConfig::add_file(const std::string& path, int depth) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return;
  std::ostringstream text;
  text << in.rdbuf();
  add_text(text.str(), path, depth);
}

void SshConfig::add_text(std::string_view text, const std::string& file, int depth) {
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    line = line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
    const std::size_t keyword_end = std::min(line.find_first_of(" \t="), line.size());
    const std::size_t value = std::min(line.find_first_not_of(" \t=", keyword_end), line.size());
    Line parsed;
    parsed.place = fmt::format("{}:{}", file, number);
    parsed.keyword = lower(line.substr(0, keyword_end));
    parsed.rest = std::string(line.substr(value));
    parsed.words = split_words(parsed.rest);
    parsed.depth = depth;
    if (parsed.keyword != "include") {
      lines_.push_back(std::move(parsed));
      continue;
    }
    if (depth >= kMaxIncludes) continue;
    // An included file is under the Host block it is included from; each() restores that block
    // when the depth falls again.
    for (const std::string& word : parsed.words) {
      std::string pattern = expand_home(word);
      if (!pattern.empty() && pattern.front() != '/') {
        const std::size_t slash = file.rfind('/');
        pattern = file.substr(0, slash == std::string::npos ? 0 : slash + 1) + pattern;
      }
      glob_t found{};
      if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
        for (std::size_t i = 0; i < found.gl_pathc; ++i) {
          lines_.push_back(Line{parsed.place, std::string(kIncludeBegins), {}, {}, depth + 1});
          add_file(found.gl_pathv[i], depth + 1);
          lines_.push_back(Line{parsed.place, std::string(kIncludeEnds), {}, {}, depth + 1});
        }
      }
      ::globfree(&found);
    }
  }
}

template <class Use>
void SshConfig::each_active(std::string_view name, const Use& use) const {
  bool active = true;
  std::vector<bool> outer;     // the state around each Include we are in
  std::string hostname(name);  // what `Match host` sees
  bool hostname_set = false;
  for (const Line& line : lines_) {
    const bool allowed = outer.empty() || outer.back();
    if (line.keyword == kIncludeBegins) {
      outer.push_back(active);
    } else if (line.keyword == kIncludeEnds) {
      active = outer.back();
      outer.pop_back();
    } else if (line.keyword == "host") {
      active = allowed && patterns_match(line.words, name);
    } else if (line.keyword == "match") {
      std::vector<std::string> words;
      for (const std::string& word : line.words) words.push_back(lower(word));
      if (words.size() == 1 && words[0] == "all") {
        active = allowed;
      } else if (words.size() == 2 && (words[0] == "host" || words[0] == "originalhost")) {
        std::vector<std::string> patterns;
        std::istringstream list(words[1]);
        for (std::string one; std::getline(list, one, ',');) patterns.push_back(one);
        active = allowed && patterns_match(patterns, words[0] == "host" ? hostname : name);
      } else {
        if (allowed) use(line, /*readable=*/false);
        active = false;
      }
    } else if (active) {
      if (line.keyword == "hostname" && !hostname_set && !line.words.empty()) {
        hostname = expand_tokens(line.words[0], name, name, 0, "");
        hostname_set = true;
      }
      use(line, /*readable=*/true);
    }
  }
}

SshHostConfig SshConfig::lookup(std::string_view name, std::string_view user) const {
  SshHostConfig result;
  std::set<std::string> seen;
  std::vector<std::string> identities;
  each_active(name, [&](const Line& line, bool readable) {
    if (!readable || line.words.empty()) return;
    const std::string& word = line.words[0];
    if (line.keyword == "identityfile") {
      identities.push_back(word);
      return;
    }
    if (!seen.insert(line.keyword).second) return;
    if (line.keyword == "hostname") result.hostname = expand_tokens(word, name, name, 0, "");
    if (line.keyword == "port") result.port = leading_number<std::uint16_t>(word);
    if (line.keyword == "user") result.user = word;
    if (line.keyword == "identitiesonly") result.identities_only = is_yes(word);
    if (line.keyword == "identityagent") result.identity_agent = word;
    if (line.keyword == "hostkeyalias") result.host_key_alias = word;
    if (line.keyword == "forwardagent") result.forward_agent = is_yes(word);
    if (line.keyword == "serveraliveinterval") result.alive_interval = parse_time(word);
    if (line.keyword == "serveralivecountmax") result.alive_count_max = leading_number<int>(word);
    if (line.keyword == "proxycommand") result.proxy_command = line.rest;
    if (line.keyword == "proxyjump") result.proxy_jump = word;
    if (line.keyword == "stricthostkeychecking") result.host_keys = parse_host_keys(word);
    if (line.keyword == "userknownhostsfile") result.user_known_hosts = line.words;
    if (line.keyword == "globalknownhostsfile") result.global_known_hosts = line.words;
  });
  if (result.hostname.empty()) result.hostname = std::string(name);
  // Where both are set, OpenSSH takes whichever of ProxyJump and ProxyCommand comes first.
  if (lower(result.proxy_command) == "none") result.proxy_command.clear();
  if (lower(result.proxy_jump) == "none") result.proxy_jump.clear();
  const std::string login = !user.empty()          ? std::string(user)
                            : !result.user.empty() ? result.user
                                                   : own_user_name();
  auto expand = [&](std::string_view text) {
    return expand_tokens(text, result.hostname, name, result.port, login);
  };
  for (const std::string& file : identities)
    if (lower(file) != "none") result.identity_files.push_back(expand_home(expand(file)));
  if (result.identity_agent == "SSH_AUTH_SOCK") result.identity_agent.clear();
  if (!result.identity_agent.empty() && result.identity_agent.front() == '$') {
    const char* value = std::getenv(result.identity_agent.c_str() + 1);
    result.identity_agent = value != nullptr ? value : "none";
  }
  result.identity_agent = expand_home(expand(result.identity_agent));
  for (std::string& file : result.user_known_hosts) file = expand_home(expand(file));
  for (std::string& file : result.global_known_hosts) file = expand_home(expand(file));
  return result;
}

std::vector<std::string> SshConfig::ignored(std::string_view name) const {
  std::vector<std::string> notes;
  std::set<std::string> seen;
  each_active(name, [&](const Line& line, bool readable) {
    if (!readable) {
      notes.push_back(fmt::format(
          "{}: Match {}: only `Match all`, `Match host` and `Match originalhost` are understood; "
          "this block is skipped",
          line.place, line.rest));
      return;
    }
    const auto known = unsupported().find(line.keyword);
    if (known == unsupported().end() || line.words.empty()) return;
    const std::string first = lower(line.words[0]);
    if (first == "no" || first == "none" || first == "any" || !seen.insert(line.keyword).second)
      return;
    notes.push_back(
        fmt::format("{}: {} is not supported: {}", line.place, line.keyword, known->second));
  });
  return notes;
}

}  // namespace dt::launcher
