#include "core/preflight/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace dt::preflight {
namespace {

using nlohmann::json;

/// Remarks of several hosts that say the same.
struct SameRemark {
  Remark remark;
  std::vector<std::size_t> hosts;
};

std::vector<SameRemark> grouped(const std::vector<Remark>& remarks) {
  std::vector<SameRemark> all;
  for (const Remark& remark : remarks) {
    const auto same = [&remark](const SameRemark& other) {
      return other.remark.row == remark.row && other.remark.mark == remark.mark &&
             other.remark.what == remark.what;
    };
    auto at = std::ranges::find_if(all, same);
    if (at == all.end()) at = all.insert(all.end(), SameRemark{remark, {}});
    at->hosts.push_back(remark.host);
  }
  return all;
}

/// With the figures of the slowest of these hosts.
std::string speed_text(const Verdict& verdict, const std::vector<std::size_t>& hosts, Mark mark) {
  Speed slowest;
  for (const std::size_t i : hosts) {
    const Speed& one = verdict.speeds[i];
    if (one.bytes_per_second == 0) continue;
    if (slowest.bytes_per_second == 0 || one.bytes_per_second < slowest.bytes_per_second)
      slowest = one;
  }
  if (slowest.bytes_per_second == 0) return to_text(mark);
  const std::string text =
      fmt::format("{:.0f} us, {}", slowest.latency_us, rate_text(slowest.bytes_per_second));
  return mark == Mark::kOk ? text : fmt::format("{} {}", to_text(mark), text);
}

json facts_of(const HostFindings& host) {
  json facts = json::object();
  if (host.command && *host.command) {
    const CommandFacts& said = **host.command;
    facts["command"] = {{"path", said.path}, {"version", said.version}, {"sha256", said.sha256}};
    for (const FileFacts& file : said.files) facts["files"][file.name] = file.sha256;
  }
  if (host.volume && *host.volume) {
    const VolumeFacts& said = **host.volume;
    facts["volume"] = {
        {"mount", said.mount}, {"read_us", said.read_us}, {"write_us", said.write_us}};
  }
  if (host.clock && *host.clock)
    facts["clock"] = {{"offset_s", (*host.clock)->offset_s}, {"error_s", (*host.clock)->error_s}};
  if (host.machine && *host.machine) {
    const MachineFacts& said = **host.machine;
    facts["machine"] = {{"cores", said.cores},
                        {"memory", said.memory},
                        {"memory_free", said.memory_free},
                        {"shm_free", said.shm_free},
                        {"runtime_free", said.runtime_free},
                        {"open_files", said.open_files},
                        {"locked_memory", said.locked_memory},
                        {"processes_left", said.processes_left}};
  }
  if (host.gpus && *host.gpus)
    facts["gpus"] = {{"names", (*host.gpus)->names}, {"driver", (*host.gpus)->driver}};
  return facts;
}

}  // namespace

std::string table_text(const Verdict& verdict) {
  std::vector<std::pair<std::array<Mark, kRows.size()>, std::vector<std::size_t>>> lines;
  for (std::size_t i = 0; i < verdict.hosts.size(); ++i) {
    const auto same = [&](const auto& line) { return line.first == verdict.marks[i]; };
    auto at = std::ranges::find_if(lines, same);
    if (at == lines.end()) at = lines.insert(lines.end(), {verdict.marks[i], {}});
    at->second.push_back(i);
  }
  std::vector<std::string> names;
  std::size_t width = 5;
  for (const auto& line : lines) {
    names.push_back(verdict.in_words(line.second));
    width = std::max(width, names.back().size());
  }
  std::string out = fmt::format("{:<{}}", "hosts", width);
  for (const Row row : kRows) out += fmt::format("  {:<7}", to_text(row));
  const auto end_line = [&out] {
    while (out.ends_with(' ')) out.pop_back();
    out += '\n';
  };
  end_line();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    out += fmt::format("{:<{}}", names[i], width);
    const auto& [marks, hosts] = lines[i];
    for (std::size_t k = 0; k + 1 < marks.size(); ++k)
      out += fmt::format("  {:<7}", to_text(marks[k]));
    out += "  " + speed_text(verdict, hosts, marks.back());
    end_line();
  }
  return out + remarks_text(verdict);
}

std::string remarks_text(const Verdict& verdict) {
  std::string out;
  for (const auto& [remark, hosts] : grouped(verdict.remarks))
    out += fmt::format("{} {} {}: {}\n     remedy: {}\n", to_text(remark.mark), to_text(remark.row),
                       verdict.in_words(hosts), remark.what, remark.remedy);
  return out;
}

std::string json_text(const Findings& findings, const Verdict& verdict, int exit_code) {
  json hosts = json::array();
  for (std::size_t i = 0; i < verdict.hosts.size(); ++i) {
    json marks = json::object();
    for (const Row row : kRows)
      marks[to_text(row)] = to_text(verdict.marks[i][static_cast<std::size_t>(row)]);
    hosts.push_back({{"host", to_string(verdict.hosts[i])},
                     {"marks", std::move(marks)},
                     {"facts", facts_of(findings.hosts[i])}});
  }
  json remarks = json::array();
  for (const Remark& remark : verdict.remarks)
    remarks.push_back({{"host", to_string(verdict.hosts[remark.host])},
                       {"check", to_text(remark.row)},
                       {"mark", to_text(remark.mark)},
                       {"what", remark.what},
                       {"remedy", remark.remedy}});
  json ways = json::array();
  for (const Way& way : findings.ways)
    if (!way.why_not.empty())
      ways.push_back({{"from", to_string(verdict.hosts[way.from])},
                      {"to", to_string(verdict.hosts[way.to])},
                      {"address", way.address},
                      {"port", way.port},
                      {"why", way.why_not}});
  json speeds = json::array();
  for (const Speed& speed : findings.speeds)
    speeds.push_back({{"from", to_string(verdict.hosts[speed.from])},
                      {"to", to_string(verdict.hosts[speed.to])},
                      {"latency_us", speed.latency_us},
                      {"bytes_per_second", speed.bytes_per_second}});
  const json all = {{"exit_code", exit_code},
                    {"hosts", std::move(hosts)},
                    {"remarks", std::move(remarks)},
                    {"unreached", std::move(ways)},
                    {"speeds", std::move(speeds)}};
  return all.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace dt::preflight
