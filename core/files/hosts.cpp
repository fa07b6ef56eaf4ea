#include "core/files/hosts.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <span>

#include "core/files/host_names.h"

namespace dt {
namespace {

using host_names::is_digit;
using host_names::is_name_char;
using host_names::kMostHosts;
using host_names::mistake;
using host_names::number;
using host_names::Parsed;
using host_names::shown;
using host_names::Text;
using host_names::Word;

constexpr std::uint32_t kLastGpu = 255;  ///< More than any host has.
constexpr Text kGpus = "gpus=";

bool is_ipv6(Text text) {
  const std::size_t zone = std::min(text.find('%'), text.size());
  const Text address = text.substr(0, zone);
  const Text rest = zone < text.size() ? text.substr(zone + 1) : Text("lo");
  const auto hex = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == ':' || c == '.';
  };
  return std::ranges::count(address, ':') >= 2 && std::ranges::all_of(address, hex) &&
         !rest.empty() && std::ranges::all_of(rest, is_name_char);
}

/// Every host that the word, which begins at `at`, stands for.
Parsed<std::vector<Host>> parse_host(Text word, std::size_t at, std::size_t most) {
  if (word.find("://") != Text::npos)
    return mistake(at, "\"{}\": no scheme: [user@]host[:port] was expected", shown(word));
  if (const std::size_t comma = word.find(','); comma < word.find('['))
    return mistake(at + comma, "\"{}\": one host a line", shown(word));
  Host host;
  if (const std::size_t sign = word.rfind('@'); sign != Text::npos) {
    const Text user = word.substr(0, sign);
    if (user.empty()) return mistake(at, "a user's name is missing before \"@\"");
    const auto bad = [](char c) { return c <= ' ' || c > '~' || c == ':' || c == '[' || c == ']'; };
    if (user.front() == '-' || std::ranges::any_of(user, bad))
      return mistake(at, "\"{}\" is no user's name", shown(user));
    host.user = user;
    word.remove_prefix(sign + 1);
    at += sign + 1;
  }
  if (word.empty()) return mistake(at, "a host's name is missing after \"@\"");

  const std::size_t close = word.find(']');
  const bool bracketed =
      word.front() == '[' && close != Text::npos && word.substr(0, close).find(':') != Text::npos;
  const std::size_t colon = word.find(':', bracketed ? close : 0);
  if (!bracketed && std::ranges::count(word, ':') > 1)
    return mistake(at, "\"{}\": write an IPv6 address in brackets, as in [fe80::1]", shown(word));
  const Text name = word.substr(0, colon);
  if (colon != Text::npos) {
    const auto port = number(word.substr(colon + 1), 65535);
    if (!port || *port == 0)
      return mistake(at + colon + 1, "\"{}\" is no port: a number 1 to 65535 was expected",
                     shown(word.substr(colon + 1)));
    host.port = static_cast<std::uint16_t>(*port);
  }
  if (name.empty()) return mistake(at, "a host's name is missing before \":\"");
  if (bracketed) {
    const Text address = name.substr(1, close - 1);
    if (close + 1 != name.size())
      return mistake(at + close + 1, "\"{}\": only \":port\" may follow an IPv6 address",
                     shown(name.substr(close + 1)));
    if (!is_ipv6(address)) return mistake(at + 1, "\"{}\" is no IPv6 address", shown(address));
    host.name = address;
    return std::vector<Host>{host};
  }
  auto names = host_names::expand(name, at, most);
  if (!names) return tl::unexpected(names.error());
  std::vector<Host> hosts;
  for (auto& each : *names) {
    host.name = std::move(each);
    hosts.push_back(host);
  }
  return hosts;
}

/// What may follow a host on its line.
struct Settings {
  std::optional<std::uint32_t> slots;
  std::optional<StarterKind> via;
  std::size_t via_at = 0;
  Text gpus;
  std::size_t gpus_at = 0;
};

Parsed<StarterKind> parse_via(Text text, std::size_t at) {
  if (const auto kind = starter_kind(text)) return *kind;
  std::vector<Text> names;
  for (const StarterKind kind : kStarterKinds) names.push_back(to_text(kind));
  return mistake(at, "\"{}\" is no way to reach a host: {} was expected", shown(text),
                 fmt::join(names, ", "));
}

Parsed<Settings> parse_settings(std::span<const Word> words) {
  constexpr Text kSlots = "slots=";
  constexpr Text kVia = "via=";
  Settings settings;
  for (const Word& word : words) {
    if (word.text.starts_with(kSlots)) {
      if (settings.slots) return mistake(word.at, "slots= is given twice");
      const auto slots =
          host_names::parse_slots(word.text.substr(kSlots.size()), word.at + kSlots.size());
      if (!slots) return tl::unexpected(slots.error());
      settings.slots = *slots;
    } else if (word.text.starts_with(kVia)) {
      if (settings.via) return mistake(word.at, "via= is given twice");
      const auto via = parse_via(word.text.substr(kVia.size()), word.at + kVia.size());
      if (!via) return tl::unexpected(via.error());
      settings.via = *via;
      settings.via_at = word.at;
    } else if (word.text.starts_with(kGpus)) {
      if (settings.gpus_at > 0) return mistake(word.at, "gpus= is given twice");
      settings.gpus = word.text.substr(kGpus.size());
      settings.gpus_at = word.at;
      if (!gpu_numbers(settings.gpus))
        return mistake(word.at + kGpus.size(),
                       "\"{}\" is no list of GPUs: nvidia-smi's numbers, each once, as in 0,2-5, "
                       "were expected",
                       shown(settings.gpus));
    } else {
      return mistake(word.at,
                     "\"{}\" was not expected: a line is [user@]host[:port] [slots=N] [gpus=LIST] "
                     "[via=KIND]",
                     shown(word.text));
    }
  }
  return settings;
}

/// What lines so far have given, and the first that gave it.
template <class Setting>
struct Given {
  Setting setting{};
  std::uint32_t line = 0;
};
struct Ways {
  std::map<std::string, Given<StarterKind>, std::less<>> vias;  ///< By name.
  std::map<Host, Given<std::string>> gpus;
};

Parsed<std::vector<HostLine>> parse_line(Text line, std::uint32_t line_number, std::size_t most,
                                         Ways& ways) {
  const auto words = host_names::split(line.substr(0, line.find('#')));
  std::vector<HostLine> lines;
  if (words.empty()) return lines;
  auto hosts = parse_host(words[0].text, words[0].at, most);
  if (!hosts) return tl::unexpected(hosts.error());
  const auto settings = parse_settings(std::span(words).subspan(1));
  if (!settings) return tl::unexpected(settings.error());
  for (auto& host : *hosts) {
    if (const auto via = settings->via) {
      if (knows_names_only(*via) && (!host.user.empty() || host.port != 0))
        return mistake(settings->via_at, "via={} reaches a host by its name alone: {} has {}",
                       to_text(*via), to_string(host), host.port != 0 ? "a port" : "a user");
      const auto [known, is_new] =
          ways.vias.try_emplace(host.name, Given<StarterKind>{*via, line_number});
      if (!is_new && known->second.setting != *via)
        return mistake(settings->via_at, "{} has via={} in line {}: one host is reached in one way",
                       host.name, to_text(known->second.setting), known->second.line);
      host.via = via;
    }
    if (host.gpus = settings->gpus; !host.gpus.empty()) {
      const auto [known, is_new] =
          ways.gpus.try_emplace(host, Given<std::string>{host.gpus, line_number});
      if (!is_new && known->second.setting != host.gpus)
        return mistake(settings->gpus_at, "{} has gpus={} in line {}: one host has one list", host,
                       known->second.setting, known->second.line);
    }
    lines.push_back({std::move(host), settings->slots, line_number});
  }
  return lines;
}

/// A line without via has that of the other lines of its name, and one without gpus its host's.
void fill_ways(std::vector<HostLine>& lines, const Ways& ways) {
  if (ways.vias.empty() && ways.gpus.empty()) return;
  for (HostLine& line : lines) {
    if (const auto way = ways.vias.find(line.host.name); way != ways.vias.end())
      line.host.via = way->second.setting;
    if (const auto list = ways.gpus.find(line.host); list != ways.gpus.end())
      line.host.gpus = list->second.setting;
  }
}

}  // namespace

std::string to_string(const Host& host) {
  std::string out;
  if (!host.user.empty()) out = host.user + "@";
  out += host.name.find(':') == std::string::npos ? host.name : "[" + host.name + "]";
  if (host.port != 0) out += fmt::format(":{}", host.port);
  return out;
}

std::string line_of(const Host& host) {
  std::string out = to_string(host);
  if (!host.gpus.empty()) out += fmt::format(" {}{}", kGpus, host.gpus);
  return host.via ? fmt::format("{} via={}", out, to_text(*host.via)) : out;
}

HostOnWire to_wire(const Host& host) {
  std::string before = host.via ? fmt::format("{} ", to_text(*host.via)) : "";
  if (!host.gpus.empty()) before += fmt::format("{}{} ", kGpus, host.gpus);
  return {before + host.user, host.name, host.port};
}

std::optional<Host> from_wire(HostOnWire host) {
  Host out{std::move(host.user), std::move(host.name), host.port};
  for (;;) {
    const std::size_t blank = out.user.find(' ');
    if (blank == std::string::npos) return out;
    const Text word = Text(out.user).substr(0, blank);
    if (word.starts_with(kGpus))
      out.gpus = word.substr(kGpus.size());
    else if (!(out.via = starter_kind(word)))
      return std::nullopt;
    out.user.erase(0, blank + 1);
  }
}

std::optional<std::vector<std::uint32_t>> gpu_numbers(std::string_view list) {
  std::vector<std::uint32_t> out;
  std::bitset<kLastGpu + 1> known;
  for (bool has_more = true; has_more;) {
    has_more = list.find(',') != Text::npos;
    Text last = host_names::take_until(list, ',');
    const bool is_range = last.find('-') != Text::npos;
    const auto begin = number(is_range ? host_names::take_until(last, '-') : last, kLastGpu);
    const auto end = number(last, kLastGpu);
    if (!begin || !end || *begin > *end) return std::nullopt;
    for (std::uint32_t gpu = *begin; gpu <= *end; ++gpu) {
      if (known[gpu]) return std::nullopt;
      known.set(gpu);
      out.push_back(gpu);
    }
  }
  return out;
}

Result<std::vector<HostLine>> parse_hosts(std::string_view text, std::string_view file) {
  constexpr Text kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<HostLine> all;
  Ways ways;
  for (std::uint32_t line = 1; !text.empty(); ++line) {
    auto lines =
        parse_line(host_names::take_until(text, '\n'), line, kMostHosts - all.size(), ways);
    if (!lines)
      return fail(ErrorKind::kInvalid, "{}:{}:{}: {}", file, line, lines.error().at + 1,
                  lines.error().why);
    if (all.size() + lines->size() > kMostHosts)
      return fail(ErrorKind::kInvalid, "{}:{}:1: the list would have more than {} hosts", file,
                  line, kMostHosts);
    std::move(lines->begin(), lines->end(), std::back_inserter(all));
  }
  fill_ways(all, ways);
  return all;
}

std::vector<HostSlots> sum_slots(const std::vector<HostLine>& lines) {
  std::vector<HostSlots> sums;
  std::map<Host, std::size_t> index;
  for (const HostLine& line : lines) {
    const auto [known, is_new] = index.try_emplace(line.host, sums.size());
    if (is_new) sums.push_back({line.host, 0});
    HostSlots& sum = sums[known->second];
    sum.slots += line.slots.value_or(1);
    if (sum.host.gpus.empty()) sum.host.gpus = line.host.gpus;
  }
  return sums;
}

std::vector<HostLine> with_known_ways(std::vector<HostLine> lines, const std::vector<Host>& known) {
  std::map<Text, const Host*> by_name;  // null: several hosts have the name
  for (const Host& host : known) {
    const auto [entry, is_new] = by_name.try_emplace(host.name, &host);
    if (!is_new && entry->second && *entry->second != host) entry->second = nullptr;
  }
  for (HostLine& line : lines) {
    const auto entry = by_name.find(line.host.name);
    if (entry == by_name.end() || !entry->second) continue;
    if (line.host.user.empty()) line.host.user = entry->second->user;
    if (line.host.port == 0) line.host.port = entry->second->port;
    if (!line.host.via) line.host.via = entry->second->via;
    if (line.host.gpus.empty()) line.host.gpus = entry->second->gpus;
  }
  return lines;
}

bool are_same_lines(const std::vector<HostSlots>& a, const std::vector<HostSlots>& b) {
  return std::ranges::equal(a, b, [](const HostSlots& x, const HostSlots& y) {
    return x == y && line_of(x.host) == line_of(y.host);
  });
}

Result<std::vector<Host>> place_workers(const std::vector<HostLine>& lines, std::uint32_t count) {
  const auto hosts = sum_slots(lines);
  std::uint64_t slots = 0;
  for (const auto& host : hosts) slots += host.slots;
  const bool limited =
      std::ranges::any_of(lines, [](const auto& line) { return line.slots.has_value(); });
  if (count > 0 && hosts.empty())
    return fail(ErrorKind::kInvalid, "there is no host for {} workers", count);
  if (limited && count > slots)
    return fail(ErrorKind::kInvalid,
                "{} workers were asked for but the hosts have {} slots: add hosts, raise slots=N, "
                "or ask for fewer",
                count, slots);
  std::uint32_t rounds = 1;  // after so many all slots are filled: without limit they begin again
  for (const auto& host : hosts) rounds = std::max(rounds, host.slots);
  std::vector<std::uint32_t> counts(hosts.size());
  std::uint32_t left = count;
  for (std::uint32_t round = 0; left > 0; round = (round + 1) % rounds)
    for (std::size_t i = 0; i < hosts.size() && left > 0; ++i)
      if (round < hosts[i].slots) ++counts[i], --left;
  std::vector<Host> workers;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    workers.insert(workers.end(), counts[i], hosts[i].host);
  return workers;
}

std::string at_host(const Host& host, const std::string& why) {
  const std::string name = to_string(host);
  return why.starts_with(name + ":") ? why : fmt::format("{}: {}", name, why);
}

std::string join_hosts(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> out;
  for (const HostSlots& s : hosts)
    out.push_back(s.slots == 1 ? to_string(s.host) : fmt::format("{} x{}", s.host, s.slots));
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string format_host_worker(const std::vector<Host>& workers) {
  std::string text;
  for (const Host& worker : workers) text += line_of(worker) + "\n";
  return text;
}

}  // namespace dt
