#include "launcher/backend/ssh/config.h"

#include <glob.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "core/base/number.h"

namespace dt::launcher {
namespace {

constexpr int kMaxIncludes = 16;
constexpr std::int64_t kYear = std::int64_t{365} * 86400;  ///< Seconds.

/// The words of a line, "quoted words" whole; an unquoted # begins a comment.
std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  while ((in >> std::ws).good() && in.peek() != '#')
    in >> std::quoted(words.emplace_back(), '"', '\0');
  return words;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  std::istringstream list{std::string(text)};
  for (std::string one; std::getline(list, one, ',');) parts.push_back(one);
  return parts;
}

bool is_yes(std::string_view word) {
  const std::string w = lower_case(word);
  return w == "yes" || w == "true";
}

/// Seconds, or with a unit: 90, 2m, 1h30m. A year at most.
Duration parse_time(std::string_view text) {
  std::int64_t total = 0;
  while (const auto number = take_number<std::uint64_t>(text)) {
    const std::string unit = lower_case(text.substr(0, 1));
    const std::int64_t unit_s = unit == "m" ? 60 : unit == "h" ? 3600 : unit == "d" ? 86400 : 1;
    const auto count = static_cast<std::int64_t>(std::min<std::uint64_t>(*number, kYear));
    total = std::min(total + count * unit_s, kYear);
    text.remove_prefix(unit.size());
  }
  return std::chrono::seconds(total);
}

/// "ask" counts as strict: there is no one to ask.
std::optional<io::HostKeyPolicy> parse_host_keys(std::string_view text) {
  const std::string word = lower_case(text);
  if (word == "yes" || word == "true" || word == "ask") return io::HostKeyPolicy::kStrict;
  if (word == "accept-new") return io::HostKeyPolicy::kAcceptNew;
  if (word == "no" || word == "false" || word == "off") return io::HostKeyPolicy::kOff;
  return std::nullopt;
}

/// Bytes, or with a unit: 500, 64K, 1G. Saturates.
std::uint64_t parse_size(std::string_view text) {
  const std::uint64_t number = take_number<std::uint64_t>(text).value_or(0);
  const std::string unit = lower_case(text.substr(0, 1));
  const int shift = unit == "k" ? 10 : unit == "m" ? 20 : unit == "g" ? 30 : 0;
  return std::min(number, std::numeric_limits<std::uint64_t>::max() >> shift) << shift;
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

struct Line {
  std::string place;  ///< "file:line"
  std::string keyword;
  std::string rest;  ///< Everything after the keyword, unsplit.
  std::vector<std::string> words;
};

/// What a Match line says of the host.
enum class Decision { kNo, kYes, kOpenSsh };

/// Keywords whose values are single paths: `ssh -G` prints them without quotes.
bool is_path(std::string_view keyword) {
  return keyword == "identityfile" || keyword == "certificatefile" || keyword == "identityagent";
}

/// Collects the settings of one host.
class Reader {
 public:
  /// `user`: as given elsewhere, or empty.
  Reader(std::string_view name, std::string_view user) : name_(name), user_(user) {}

  /// `is_active`: the lines before the file's first Host or Match line are for the host.
  void read(const std::string& path, bool is_active, int depth) {
    const bool is_reached = is_active;  // whatever blocks the file has
    std::ifstream in(path, std::ios::binary);
    std::size_t number = 0;
    for (std::string text; std::getline(in, text);) {
      const Line line = parse(text, fmt::format("{}:{}", path, ++number));
      if (line.keyword == "stricthostkeychecking" && lower_case(line.rest) == "ask")
        config_.asks_somewhere = true;
      if (line.keyword == "host")
        is_active = is_reached && patterns_match(line.words, name_);
      else if (line.keyword == "match")
        is_active = is_reached && matches(line);
      else if (is_active && line.keyword == "include")
        include(line, path, depth);
      else if (is_active && !line.words.empty())
        use(line);
    }
  }

  /// Lines as `ssh -G` prints them.
  void take_answer(const std::string& text, const std::string& defaults) {
    const std::set<std::string> usual = lines_of(defaults);
    const bool usual_identities = identities_of(text) == identities_of(defaults);
    std::istringstream in(text);
    for (std::string one; std::getline(in, one);) {
      Line line = parse(one, "ssh -G");
      if (line.words.empty()) continue;
      if (is_path(line.keyword)) line.words = {line.rest};
      const bool is_own = line.keyword == "hostname" || line.keyword == "user";
      const bool is_usual =
          line.keyword == "identityfile" ? usual_identities : !is_own && usual.contains(one);
      if (!is_usual) use(line);
    }
    config_.ignored.clear();
  }

  SshHostConfig finish() {
    SshHostConfig& config = config_;
    if (config.hostname.empty()) config.hostname = name_;
    if (lower_case(config.proxy_command) == "none") config.proxy_command.clear();
    if (lower_case(config.proxy_jump) == "none") config.proxy_jump.clear();
    const std::string login = login_user();
    const auto expand = [&](std::string& text) {
      text = expand_home(expand_tokens(text, config.hostname, name_, config.port, login));
    };
    for (auto* files : {&config.identity_files, &config.certificate_files})
      std::erase_if(*files, [](const std::string& file) { return lower_case(file) == "none"; });
    if (config.identity_agent == "SSH_AUTH_SOCK") config.identity_agent.clear();
    if (config.identity_agent.starts_with('$')) {
      const char* value = std::getenv(config.identity_agent.c_str() + 1);
      config.identity_agent = value != nullptr ? value : "none";
    }
    expand(config.identity_agent);
    for (auto* files : {&config.identity_files, &config.certificate_files, &config.user_known_hosts,
                        &config.global_known_hosts})
      std::for_each(files->begin(), files->end(), expand);
    return std::move(config_);
  }

 private:
  /// The keyword is empty where there is none.
  static Line parse(std::string_view text, std::string place) {
    const std::size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
    text = text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
    if (text.starts_with('#')) return {};
    const std::size_t keyword_end = std::min(text.find_first_of(" \t="), text.size());
    const std::size_t value = std::min(text.find_first_not_of(" \t=", keyword_end), text.size());
    Line line;
    line.place = std::move(place);
    line.keyword = lower_case(text.substr(0, keyword_end));
    line.rest = std::string(text.substr(value));
    line.words = split_words(line.rest);
    return line;
  }

  void include(const Line& line, const std::string& path, int depth) {
    if (depth >= kMaxIncludes) return;
    for (const std::string& word : line.words) {
      const auto pattern = std::filesystem::path(path).parent_path() / expand_home(word);
      glob_t found{};
      if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
        for (std::size_t i = 0; i < found.gl_pathc; ++i) read(found.gl_pathv[i], true, depth + 1);
      ::globfree(&found);
    }
  }

  static std::set<std::string> lines_of(const std::string& text) {
    std::set<std::string> lines;
    std::istringstream in(text);
    for (std::string one; std::getline(in, one);) lines.insert(one);
    return lines;
  }

  static std::vector<std::string> identities_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string one; std::getline(in, one);)
      if (one.starts_with("identityfile ")) lines.push_back(one);
    return lines;
  }

  [[nodiscard]] const std::string& login_user() const {
    return !user_.empty() ? user_ : !config_.user.empty() ? config_.user : own_user_name();
  }

  /// Whether the block of a Match line counts as one for the host.
  bool matches(const Line& line) {
    const Decision decision = decide(line.rest);
    if (decision == Decision::kOpenSsh && config_.undecided.empty())
      config_.undecided = fmt::format("{}: Match {}", line.place, line.rest);
    return decision != Decision::kNo;
  }

  /// All criteria must hold, so that one that does not decides whatever the others say: a probe of
  /// `host a exec probe` is for host a alone. "final" has OpenSSH read everything twice.
  [[nodiscard]] Decision decide(const std::string& criteria) const {
    std::vector<std::string> words;
    for (const std::string& word : split_words(criteria)) {
      const std::size_t equals = is_criterion(words) ? word.find('=') : std::string::npos;
      words.push_back(word.substr(0, equals));
      if (equals != std::string::npos) words.push_back(word.substr(equals + 1));
    }
    bool holds = !words.empty();
    bool is_known = true;
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::string name = lower_case(words[i]);
      const bool is_negated = name.starts_with('!');
      if (is_negated) name.erase(0, 1);
      if (name == "canonical" || name == "final") return Decision::kOpenSsh;
      if (name == "all") {
        holds = holds && !is_negated;
        continue;
      }
      const std::optional<std::string> value = value_of(name);
      if (++i == words.size()) return Decision::kOpenSsh;  // an error, in its words
      if (value)
        holds = holds && patterns_match(split_list(words[i]), *value) != is_negated;
      else
        is_known = false;
    }
    return !holds ? Decision::kNo : is_known ? Decision::kYes : Decision::kOpenSsh;
  }

  /// Whether the word after these is the name of a criterion, not its value.
  static bool is_criterion(const std::vector<std::string>& words) {
    bool is_name = true;
    for (const std::string& word : words) {
      const std::string name = lower_case(word.starts_with('!') ? word.substr(1) : word);
      is_name = !is_name || name == "all" || name == "canonical" || name == "final";
    }
    return is_name;
  }

  /// What a criterion's patterns are compared with; nothing: we do not know it.
  [[nodiscard]] std::optional<std::string> value_of(const std::string& criterion) const {
    if (criterion == "host") return config_.hostname.empty() ? name_ : config_.hostname;
    if (criterion == "originalhost") return name_;
    if (criterion == "user") return login_user();
    if (criterion == "localuser") return own_user_name();
    return std::nullopt;
  }

  void use(const Line& line) {
    const std::string& word = line.words[0];
    if (line.keyword == "identityfile") return config_.identity_files.push_back(word);
    if (line.keyword == "certificatefile") return config_.certificate_files.push_back(word);
    if (const auto why = unsupported().find(line.keyword); why != unsupported().end()) {
      const std::string first = lower_case(word);
      if (first == "no" || first == "none" || first == "any") return;
      if (seen_.insert(line.keyword).second)
        config_.ignored.push_back(
            fmt::format("{}: {} is not supported: {}", line.place, line.keyword, why->second));
      return;
    }
    // Of the two, OpenSSH takes whichever comes first, be it "none".
    const bool is_proxy = line.keyword == "proxycommand" || line.keyword == "proxyjump";
    if (!seen_.insert(is_proxy ? "proxy" : line.keyword).second) return;
    if (line.keyword == "hostname") config_.hostname = expand_tokens(word, name_, name_, 0, "");
    if (line.keyword == "port") config_.port = leading_number<std::uint16_t>(word);
    if (line.keyword == "user") config_.user = word;
    if (line.keyword == "identitiesonly") config_.identities_only = is_yes(word);
    if (line.keyword == "identityagent") config_.identity_agent = word;
    if (line.keyword == "hostkeyalias") config_.host_key_alias = word;
    if (line.keyword == "forwardagent") config_.forward_agent = is_yes(word);
    if (line.keyword == "serveraliveinterval") config_.alive_interval = parse_time(word);
    if (line.keyword == "serveralivecountmax") config_.alive_count_max = leading_number<int>(word);
    if (line.keyword == "proxycommand") config_.proxy_command = line.rest;
    if (line.keyword == "proxyjump") config_.proxy_jump = word;
    if (line.keyword == "stricthostkeychecking") config_.host_keys = parse_host_keys(word);
    if (line.keyword == "ciphers") config_.ciphers = word;
    if (line.keyword == "macs") config_.macs = word;
    if (line.keyword == "kexalgorithms") config_.key_exchange = word;
    if (line.keyword == "hostkeyalgorithms") config_.host_key_types = word;
    if (line.keyword == "pubkeyacceptedalgorithms" || line.keyword == "pubkeyacceptedkeytypes")
      config_.user_key_types = word;
    if (line.keyword == "compression") config_.compression = is_yes(word);
    if (line.keyword == "rekeylimit") {
      config_.rekey_bytes = parse_size(word);
      if (line.words.size() > 1) config_.rekey_time = parse_time(line.words[1]);
    }
    if (line.keyword == "userknownhostsfile") config_.user_known_hosts = line.words;
    if (line.keyword == "globalknownhostsfile") config_.global_known_hosts = line.words;
  }

  std::string name_;
  std::string user_;
  std::set<std::string> seen_;
  SshHostConfig config_;
};

}  // namespace

std::string expand_tokens(std::string_view text, std::string_view host, std::string_view original,
                          std::uint16_t port, std::string_view user) {
  const std::map<char, std::string> values = {{'%', "%"},
                                              {'h', std::string(host)},
                                              {'n', std::string(original)},
                                              {'p', std::to_string(port == 0 ? 22 : port)},
                                              {'r', std::string(user)},
                                              {'u', own_user_name()},
                                              {'d', io::home_dir()},
                                              {'i', std::to_string(::getuid())}};
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_token = text[i] == '%' && i + 1 < text.size() && values.contains(text[i + 1]);
    if (is_token)
      out += values.at(text[++i]);
    else
      out += text[i];
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
    if (!glob_match(lower_case(body), lower_case(text))) continue;
    if (negated) return false;
    matched = true;
  }
  return matched;
}

const std::string& own_user_name() {
  static const std::string name = [] {
    const passwd* entry = ::getpwuid(::getuid());
    return entry != nullptr ? entry->pw_name : std::to_string(::getuid());
  }();
  return name;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string expand_home(std::string_view path) {
  if (path == "~" || path.substr(0, 2) == "~/") return io::home_dir() + std::string(path.substr(1));
  return std::string(path);
}

SshHostConfig read_ssh_config(const std::vector<std::string>& files, std::string_view name,
                              std::string_view user) {
  Reader reader(name, user);
  for (const std::string& file : files) reader.read(file, true, 0);
  return reader.finish();
}

SshHostConfig read_openssh_answer(const std::string& answer, const std::string& defaults,
                                  std::string_view name, std::string_view user,
                                  const SshHostConfig& from_files) {
  Reader reader(name, user);
  reader.take_answer(answer, defaults);
  SshHostConfig config = reader.finish();
  // "ask" is also what `ssh -G` prints where nothing is configured.
  if (!config.host_keys && from_files.asks_somewhere) config.host_keys = io::HostKeyPolicy::kStrict;
  config.ignored = from_files.ignored;
  return config;
}

std::string choose_algorithms(std::string_view configured, std::string_view defaults) {
  const std::string_view how = configured.substr(0, 1);
  if (how != "+" && how != "-" && how != "^") return std::string(configured);
  const std::vector<std::string> given = split_list(configured.substr(1));
  std::vector<std::string> chosen = split_list(defaults);
  if (how == "-") {
    std::erase_if(chosen, [&](const std::string& one) { return patterns_match(given, one); });
  } else {
    std::erase_if(chosen, [&](const std::string& one) {
      return std::find(given.begin(), given.end(), one) != given.end();
    });
    chosen.insert(how == "+" ? chosen.end() : chosen.begin(), given.begin(), given.end());
  }
  return fmt::format("{}", fmt::join(chosen, ","));
}

}  // namespace dt::launcher
