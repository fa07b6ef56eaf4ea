#include "launcher/backend/ssh/config.h"

#include <glob.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "core/base/number.h"
#include "io/subprocess.h"

namespace dt::launcher {
namespace {

constexpr int kMaxIncludes = 16;

/// The tokens of files: IdentityFile, CertificateFile, UserKnownHostsFile, IdentityAgent. They take
/// ${VARIABLE}s, too; GlobalKnownHostsFile takes neither.
constexpr std::string_view kFileTokens = "CLdhiklnpru";
/// Of ProxyCommand and ProxyJump.
constexpr std::string_view kProxyTokens = "hknpr";
/// Of HostName.
constexpr std::string_view kNameTokens = "h";

std::optional<bool> parse_flag(std::string_view text) {
  const std::string word = lower_case(text);
  if (word == "yes" || word == "true") return true;
  if (word == "no" || word == "false") return false;
  return std::nullopt;
}

/// Seconds, or with a unit: 90, 2m, 1h30m. A year at most, which counts as for ever.
std::optional<Duration> parse_time(std::string_view text) {
  constexpr std::int64_t kYear = std::int64_t{365} * 86400;
  if (text == "none") return Duration{};
  std::int64_t total = 0;
  do {
    const auto number = take_number<std::uint64_t>(text);
    const std::string unit = lower_case(text.substr(0, 1));
    const std::int64_t unit_s = unit.empty() || unit == "s" ? 1
                                : unit == "m"               ? 60
                                : unit == "h"               ? 3600
                                : unit == "d"               ? 86400
                                : unit == "w"               ? 7 * 86400
                                                            : 0;
    if (!number || *number > INT_MAX || unit_s == 0) return std::nullopt;
    total += static_cast<std::int64_t>(*number) * unit_s;
    if (total > INT_MAX) return std::nullopt;
    text.remove_prefix(unit.size());
  } while (!text.empty());
  return std::chrono::seconds(std::min(total, kYear));
}

/// "ask" counts as strict: there is no one to ask.
std::optional<io::HostKeyPolicy> parse_host_keys(std::string_view text) {
  const std::string word = lower_case(text);
  if (word == "yes" || word == "true" || word == "ask") return io::HostKeyPolicy::kStrict;
  if (word == "accept-new") return io::HostKeyPolicy::kAcceptNew;
  if (word == "no" || word == "false" || word == "off") return io::HostKeyPolicy::kOff;
  return std::nullopt;
}

/// Bytes, or with a unit: 500, 64K, 1.5G (the fraction is dropped). Saturates.
std::optional<std::uint64_t> parse_size(std::string_view text) {
  constexpr std::string_view kUnits = "bkmgtpe";
  if (text == "default") return 0;
  const auto number = take_number<std::uint64_t>(text);
  if (text.starts_with('.'))
    text.remove_prefix(std::min(text.find_first_not_of("0123456789", 1), text.size()));
  const std::size_t unit = text.empty() ? 0 : kUnits.find(lower_case(text));
  if (!number || unit == std::string_view::npos) return std::nullopt;
  const std::size_t shift = 10 * unit;
  if (*number != 0 && *number < 16 && shift == 0) return std::nullopt;
  return std::min(*number, std::numeric_limits<std::uint64_t>::max() >> shift) << shift;
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  const auto port = parse_number<std::uint16_t>(text);
  return port == 0 ? std::nullopt : port;
}

std::optional<int> parse_count(std::string_view text) {
  const auto count = parse_number<int>(text);
  return count && *count >= 0 ? count : std::nullopt;
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
  std::string problem;  ///< Why `rest` is not to be split.
};

/// A value before its tokens are expanded.
struct Text {
  std::string text;
  std::string place;
};

struct File {
  std::string path;
  bool is_system = false;  ///< Its relative Includes are in /etc/ssh, those of a user's in ~/.ssh.
  bool must_be_ours = false;  ///< Refused if others can write it.
};

/// What a Match line says of the host.
enum class Decision { kNo, kYes, kOpenSsh };

/// Keywords with several values: `ssh -G` prints all without quotes.
bool is_list(std::string_view keyword) {
  return keyword == "userknownhostsfile" || keyword == "globalknownhostsfile" ||
         keyword == "rekeylimit";
}

bool is_none(std::string_view word) { return lower_case(word) == "none"; }

/// What OpenSSH's client would say of a file that others can write; empty: nothing.
std::string distrust(const std::string& path) {
  struct stat file {};
  const bool is_known = ::stat(path.c_str(), &file) == 0;
  const bool is_bad = is_known && ((file.st_uid != 0 && file.st_uid != ::getuid()) ||
                                   (file.st_mode & (S_IWGRP | S_IWOTH)) != 0);
  return is_bad ? path + ": it is another user's, or others can write it (chmod go-w)" : "";
}

/// Collects the settings of one host.
class Reader {
 public:
  /// `user`, `port`: as given elsewhere; or empty, 0.
  Reader(std::string_view name, std::string_view user, std::uint16_t port)
      : name_(name), user_(user), port_(port) {}

  /// `is_active`: the lines before the file's first Host or Match line are for the host. Else no
  /// line is: they must be sound all the same.
  void read(const File& file, bool is_active, int depth) {
    const bool is_reached = is_active;  // whatever blocks the file has
    std::ifstream in(file.path, std::ios::binary);
    if (file.must_be_ours) refuse(distrust(file.path));
    std::size_t number = 0;
    for (std::string text; config_.refused.empty() && std::getline(in, text);) {
      const Line line = parse(text, fmt::format("{}:{}", file.path, ++number));
      if (!line.problem.empty())
        refuse(line, line.problem);
      else if (line.keyword == "host")
        is_active = is_host(line) && is_reached;
      else if (line.keyword == "match")
        is_active = matches(line, is_reached) && is_reached;
      else if (line.keyword == "include")
        include(line, file, is_active, depth);
      else
        use(line, is_active);
    }
  }

  /// Lines as `ssh -G` prints them.
  void take_answer(const std::string& text, const std::string& defaults) {
    constexpr std::string_view kIdentity = "identityfile ";
    const auto usual = lines_of(defaults);
    const bool usual_identities = lines_of(text, kIdentity) == lines_of(defaults, kIdentity);
    is_answer_ = true;
    for (const std::string& one : lines_of(text)) {
      const bool is_own = one.starts_with("hostname ") || one.starts_with("user ");
      const bool is_usual = one.starts_with(kIdentity)
                                ? usual_identities
                                : !is_own && std::ranges::count(usual, one) > 0;
      const std::size_t end = std::min(one.find(' '), one.size());
      Line line{"ssh -G", one.substr(0, end), one.substr(std::min(end + 1, one.size())), {}, {}};
      std::istringstream words(line.rest);
      for (std::string word; is_list(line.keyword) && words >> word;) line.words.push_back(word);
      if (line.words.empty()) line.words = {line.rest};
      if (!is_usual && !line.rest.empty()) use(line, true);
    }
    config_.ignored.clear();
  }

  SshHostConfig finish() {
    SshHostConfig& config = config_;
    config.hostname = lower_case(config.hostname.empty() ? name_ : config.hostname);
    if (is_none(proxy_command_.text)) proxy_command_.text.clear();
    if (is_none(proxy_jump_.text)) proxy_jump_.text.clear();
    const Tokens tokens = tokens_of_host();
    config.proxy_written = proxy_command_.text;
    config.proxy_command = percents(proxy_command_, tokens, kProxyTokens);
    config.proxy_jump = percents(proxy_jump_, tokens, kProxyTokens);
    config.has_identities = !identities_.empty();
    for (const Text& file : identities_)
      if (!is_none(file.text)) config.identity_files.push_back(path(file, tokens));
    for (const Text& file : certificates_) config.certificate_files.push_back(path(file, tokens));
    for (const Text& file : user_known_hosts_)
      config.user_known_hosts.push_back(is_answer_ ? file.text : path(file, tokens));
    for (const Text& file : global_known_hosts_) config.global_known_hosts.push_back(home(file));
    // "none": nothing is known, nothing is kept.
    for (auto* files : {&config.user_known_hosts, &config.global_known_hosts})
      if (files->size() == 1 && is_none(files->front())) files->front() = "/dev/null";
    std::string& agent = config.identity_agent;
    agent = is_answer_ ? agent_.text : path(agent_, tokens);
    if (agent == "SSH_AUTH_SOCK") agent.clear();
    if (agent.starts_with('$')) agent = io::variable(agent.substr(1)).value_or("none");
    return std::move(config_);
  }

 private:
  /// The keyword is empty where there is none.
  static Line parse(std::string_view text, std::string place) {
    text = text.substr(0, text.find_last_not_of(" \t\r\f") + 1);
    Line line;
    auto keyword = take_word(text);
    if (keyword && keyword->empty()) keyword = take_word(text);
    if (!keyword || keyword->empty() || keyword->starts_with('#')) return line;
    line.place = std::move(place);
    line.keyword = lower_case(*keyword);
    line.rest = std::string(text.substr(std::min(text.find_first_not_of(" \t"), text.size())));
    auto words = split_arguments(line.rest);
    if (words)
      line.words = std::move(*words);
    else
      line.problem = words.error().message;
    return line;
  }

  /// OpenSSH's client would not go on with such a file, whichever host it is for.
  void refuse(std::string why) {
    if (config_.refused.empty()) config_.refused = std::move(why);
  }
  void refuse(const Line& line, std::string_view why) {
    refuse(fmt::format("{}: {}: {}", line.place, line.keyword, why));
  }

  bool is_host(const Line& line) {
    const bool has_empty = std::ranges::any_of(line.words, [](const auto& w) { return w.empty(); });
    if (line.words.empty() || has_empty) refuse(line, "a pattern is missing");
    return patterns_match(line.words, name_);
  }

  void include(const Line& line, const File& from, bool is_active, int depth) {
    if (line.words.empty()) refuse(line, "a file is missing");
    if (depth == kMaxIncludes) return refuse(line, fmt::format("more than {} deep", kMaxIncludes));
    for (const std::string& word : line.words) {
      if (word.empty()) return refuse(line, "an empty name");
      if (from.is_system && word.starts_with('~'))
        return refuse(line, word + " in a system's file");
      std::string pattern = from.is_system ? "/etc/ssh/" : io::home_dir() + "/.ssh/";
      if (word.starts_with('~') || word.starts_with('/')) pattern.clear();
      glob_t found{};
      const int rc = ::glob((pattern + word).c_str(), GLOB_TILDE, nullptr, &found);
      for (std::size_t i = 0; rc == 0 && i < found.gl_pathc; ++i) {
        const std::string path = found.gl_pathv[i];
        if (::access(path.c_str(), R_OK) != 0 && errno != ENOENT)
          refuse(line, path + ": " + std::strerror(errno));
        read({path, from.is_system, true}, is_active, depth + 1);
      }
      ::globfree(&found);
      if (rc != 0 && rc != GLOB_NOMATCH) refuse(line, word + " cannot be read");
    }
  }

  /// Those that begin so.
  static std::vector<std::string> lines_of(const std::string& text,
                                           std::string_view beginning = {}) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string one; std::getline(in, one);)
      if (one.starts_with(beginning)) lines.push_back(one);
    return lines;
  }

  [[nodiscard]] const std::string& login_user() const {
    return !user_.empty() ? user_ : !config_.user.empty() ? config_.user : own_user_name();
  }

  [[nodiscard]] Tokens tokens_of_host() const {
    std::array<char, 256> buffer{};
    ::gethostname(buffer.data(), buffer.size() - 1);
    const std::string here = buffer.data();
    const std::uint16_t port = port_ != 0 ? port_ : config_.port != 0 ? config_.port : 22;
    Tokens tokens = {
        {'L', here.substr(0, here.find('.'))},
        {'d', io::home_dir()},
        {'h', config_.hostname},
        {'i', std::to_string(::getuid())},
        {'k', config_.host_key_alias.empty() ? name_ : config_.host_key_alias},
        {'l', here},
        {'n', name_},
        {'p', std::to_string(port)},
        {'r', login_user()},
        {'u', own_user_name()},
    };
    // With a jump host it depends on the version of OpenSSH.
    if (proxy_jump_.text.empty())
      tokens['C'] = sha1(here + config_.hostname + tokens['p'] + tokens['r']);
    return tokens;
  }

  static std::string sha1(const std::string& text) {
    std::array<unsigned char, SHA_DIGEST_LENGTH> digest{};
    ::SHA1(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
    return fmt::format("{:02x}", fmt::join(digest, ""));
  }

  std::string percents(const Text& from, const Tokens& tokens, std::string_view letters) {
    auto expanded = expand_tokens(from.text, tokens, letters);
    if (!expanded)
      refuse(fmt::format("{}: {}: {}", from.place, from.text, expanded.error().message));
    return expanded.value_or("");
  }

  std::string home(const Text& from) {
    auto expanded = expand_any_home(from.text);
    if (!expanded) refuse(fmt::format("{}: {}", from.place, expanded.error().message));
    return expanded.value_or("");
  }

  std::string path(const Text& from, const Tokens& tokens) {
    const std::string text = percents({home(from), from.place}, tokens, kFileTokens);
    auto expanded = expand_variables(text);
    if (!expanded)
      refuse(fmt::format("{}: {}: {}", from.place, from.text, expanded.error().message));
    return expanded.value_or("");
  }

  /// Whether the block of a Match line counts as one for the host.
  bool matches(const Line& line, bool is_reached) {
    const Decision decision = decide(line, is_reached);
    if (decision == Decision::kOpenSsh && config_.undecided.empty())
      config_.undecided = fmt::format("{}: Match {}", line.place, line.rest);
    return decision != Decision::kNo;
  }

  /// All criteria must hold, so that one that does not decides whatever the others say: a probe of
  /// `host a exec probe` is for host a alone. "final" has OpenSSH read everything twice, wherever
  /// it stands.
  [[nodiscard]] Decision decide(const Line& line, bool is_reached) {
    std::string_view rest = line.rest;
    bool holds = is_reached;
    bool is_known = true;
    int criteria = 0;
    const auto next = [&] {
      const auto word = take_word(rest);
      return word && !word->starts_with('#') ? *word : std::string();
    };
    for (std::string name = lower_case(next()); !name.empty(); name = lower_case(next())) {
      const bool is_negated = name.starts_with('!');
      if (is_negated) name.erase(0, 1);
      if (name == "all") {
        if (criteria > 1 || !next().empty()) refuse(line, "\"all\" stands alone");
        holds = holds && !is_negated;
        criteria = 1;
        break;
      }
      ++criteria;
      if (name == "final" || (name == "canonical" && is_reached)) return Decision::kOpenSsh;
      if (name == "canonical") continue;
      const std::string patterns = next();
      if (patterns.empty()) refuse(line, name + " without a value");
      if (const std::optional<bool> met = is_met(name, patterns))
        holds = holds && *met != is_negated;
      else
        is_known = false;
    }
    if (criteria == 0) refuse(line, "without a criterion");
    return !holds ? Decision::kNo : is_known ? Decision::kYes : Decision::kOpenSsh;
  }

  /// Nothing: we do not know the criterion.
  [[nodiscard]] std::optional<bool> is_met(std::string_view name, std::string_view patterns) const {
    const std::vector<std::string> list = split_list(patterns);
    const std::vector<std::string> low = split_list(lower_case(patterns));
    const std::string& host = config_.hostname.empty() ? name_ : config_.hostname;
    if (name == "host") return patterns_match(low, lower_case(host));
    if (name == "originalhost") return patterns_match(low, lower_case(name_));
    if (name == "user") return patterns_match(list, login_user());
    if (name == "localuser") return patterns_match(list, own_user_name());
    return std::nullopt;
  }

  void note_unsupported(const Line& line, std::string_view word, std::string_view why) {
    const std::string first = lower_case(word);
    const bool is_off = first == "no" || first == "none" || first == "any";
    if (!is_off && noted_.insert(line.keyword).second)
      config_.ignored.push_back(
          fmt::format("{}: {} is not supported: {}", line.place, line.keyword, why));
  }

  /// A keyword that is not ours has no effect.
  void use(const Line& line, bool is_active) {
    const std::string& keyword = line.keyword;
    const std::string word = line.words.empty() ? "" : line.words[0];
    if (!is_answer_ && unsupported().contains(keyword) && line.words.empty())
      return refuse(line, "a value is missing");
    if (keyword == "sendenv" || keyword == "setenv")
      for (const std::string& variable : line.words)
        if (variable.empty() || (variable.find('=') != variable.npos) != (keyword == "setenv"))
          return refuse(line, variable + " is no variable of it");
    if (const auto why = unsupported().find(keyword); why != unsupported().end()) {
      if (is_active) note_unsupported(line, word, why->second);
      return;
    }
    if (keyword == "proxycommand" || keyword == "proxyjump") return use_proxy(line, is_active);
    if (keyword == "userknownhostsfile") return use_list(line, is_active, user_known_hosts_);
    if (keyword == "globalknownhostsfile") return use_list(line, is_active, global_known_hosts_);
    const auto set = [&](auto& field, auto value, std::size_t most = 1) {
      const bool is_sound = check(line, value.has_value(), most);
      if (is_sound && is_active && seen_.insert(keyword).second) field = std::move(*value);
    };
    const std::optional<std::string> text = word;
    SshHostConfig& config = config_;
    if (keyword == "identityfile") return add(line, is_active, identities_);
    if (keyword == "certificatefile") return add(line, is_active, certificates_);
    if (keyword == "hostname") return set(config.hostname, host_name(line, word, is_active));
    if (keyword == "port") return set(config.port, parse_port(word));
    if (keyword == "user") return set(config.user, text);
    if (keyword == "identitiesonly") return set(config.identities_only, parse_flag(word));
    if (keyword == "identityagent") return set(agent_, socket(line, word));
    if (keyword == "hostkeyalias")
      return set(config.host_key_alias, std::optional(lower_case(word)));
    if (keyword == "forwardagent")
      return set(config.forward_agent, forwards(line, word, is_active));
    if (keyword == "serveraliveinterval") return set(config.alive_interval, parse_time(word));
    if (keyword == "serveralivecountmax") return set(config.alive_count_max, parse_count(word));
    if (keyword == "stricthostkeychecking") {
      config.asks_somewhere |= lower_case(word) == "ask";
      return set(config.host_keys, parse_host_keys(word));
    }
    // No algorithm's name, but what stands behind a keyword in quotes.
    const auto names = word.starts_with('=') ? std::nullopt : text;
    if (keyword == "ciphers") return set(config.ciphers, names);
    if (keyword == "macs") return set(config.macs, names);
    if (keyword == "kexalgorithms") return set(config.key_exchange, names);
    if (keyword == "hostkeyalgorithms") return set(config.host_key_types, names);
    if (keyword == "pubkeyacceptedalgorithms" || keyword == "pubkeyacceptedkeytypes")
      return set(config.user_key_types, names);
    if (keyword == "compression") return set(config.compression, parse_flag(word));
    if (keyword == "rekeylimit") {
      set(config.rekey_bytes, parse_size(word), 2);
      const auto time = parse_time(line.words.size() > 1 ? line.words[1] : "none");
      if (!time) return refuse(line, line.words[1] + " is no time");
      if (is_active && config.rekey_time == Duration{}) config.rekey_time = *time;
    }
  }

  /// Refuses the line unless it has a value, which `is_value`, and no more words than `most`.
  bool check(const Line& line, bool is_value, std::size_t most) {
    if (line.words.empty() || line.words[0].empty())
      refuse(line, "a value is missing");
    else if (line.words.size() > most)
      refuse(line, "something after its value: " + line.words[most]);
    else if (!is_value)
      refuse(line, line.words[0] + " is no value of it");
    return config_.refused.empty();
  }

  /// Files of these keywords add up.
  void add(const Line& line, bool is_active, std::vector<Text>& files) {
    if (!check(line, true, 1) || !is_active) return;
    const auto is_there = [&](const Text& file) { return file.text == line.words[0]; };
    if (std::ranges::none_of(files, is_there)) files.push_back({line.words[0], line.place});
  }

  void use_list(const Line& line, bool is_active, std::vector<Text>& files) {
    for (const std::string& word : line.words)
      if (word.empty() || (is_none(word) && line.words.size() > 1))
        return refuse(line, "an empty name, or \"none\" beside others");
    if (line.words.empty()) return refuse(line, "a value is missing");
    if (!is_active || !seen_.insert(line.keyword).second) return;
    for (const std::string& word : line.words) files.push_back({word, line.place});
  }

  /// Of the two, OpenSSH takes whichever comes first; "ProxyJump none" keeps no ProxyCommand out.
  void use_proxy(const Line& line, bool is_active) {
    const bool is_command = line.keyword == "proxycommand";
    const std::size_t begin = line.rest.find_first_not_of(" \t=");
    if (begin == std::string::npos) return refuse(line, "a value is missing");
    std::string text = line.rest.substr(begin);
    if (!is_command) text.erase(std::min(text.find('#'), text.size()));
    text.erase(text.find_last_not_of(" \t") + 1);
    Text& own = is_command ? proxy_command_ : proxy_jump_;
    const Text& other = is_command ? proxy_jump_ : proxy_command_;
    const bool is_late =
        !own.text.empty() || (!other.text.empty() && !is_none(is_command ? other.text : text));
    if (is_active && !is_late) own = {text, line.place};
  }

  std::optional<std::string> host_name(const Line& line, const std::string& word, bool is_active) {
    if (is_answer_ || !is_active || seen_.contains(line.keyword)) return word;
    return percents({word, line.place}, {{'h', name_}}, kNameTokens);
  }

  /// Where an ssh-agent listens: its variables must be there even if the line is for other hosts.
  std::optional<Text> socket(const Line& line, const std::string& word) {
    const auto expanded = expand_variables(word);
    if (!expanded && !is_answer_) refuse(line, expanded.error().message);
    return Text{word, line.place};
  }

  std::optional<bool> forwards(const Line& line, const std::string& word, bool is_active) {
    const std::optional<bool> flag = parse_flag(word);
    if (flag || word.empty()) return flag;
    if (is_active)
      note_unsupported(line, word, "its socket is not forwarded; `yes` forwards $SSH_AUTH_SOCK");
    socket(line, word);
    return false;
  }

  std::string name_;
  std::string user_;
  std::uint16_t port_;
  bool is_answer_ = false;  ///< The lines are those of `ssh -G`, which has expanded some.
  std::set<std::string> seen_;
  std::set<std::string> noted_;
  std::vector<Text> identities_;
  std::vector<Text> certificates_;
  std::vector<Text> user_known_hosts_;
  std::vector<Text> global_known_hosts_;
  Text agent_;
  Text proxy_command_;
  Text proxy_jump_;
  SshHostConfig config_;
};

}  // namespace

SshHostConfig read_ssh_config(const std::vector<std::string>& files, std::string_view name,
                              std::string_view user, std::uint16_t port) {
  Reader reader(name, user, port);
  for (const std::string& file : files)
    reader.read({file, file.starts_with("/etc/ssh/"), file == io::home_dir() + "/.ssh/config"},
                true, 0);
  return reader.finish();
}

SshHostConfig read_openssh_answer(const std::string& answer, const std::string& defaults,
                                  std::string_view name, std::string_view user, std::uint16_t port,
                                  const SshHostConfig& from_files) {
  Reader reader(name, user, port);
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
    std::erase_if(chosen,
                  [&](const std::string& one) { return std::ranges::count(given, one) > 0; });
    chosen.insert(how == "+" ? chosen.end() : chosen.begin(), given.begin(), given.end());
  }
  return fmt::format("{}", fmt::join(chosen, ","));
}

}  // namespace dt::launcher
