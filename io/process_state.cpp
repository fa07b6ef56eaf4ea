#include "io/process_state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

#include "core/base/number.h"
#include "io/fd.h"

namespace dt::io {

namespace {

/// Environments larger than this are cut; the kernel's own limit is a quarter of the stack limit.
constexpr std::size_t kMaxProcFile = std::size_t{8} << 20;

std::string_view name_of_state(char state) {
  constexpr std::pair<char, std::string_view> kNames[] = {{'R', "running"},
                                                          {'S', "sleeping"},
                                                          {'D', "in an uninterruptible wait"},
                                                          {'T', "stopped"},
                                                          {'t', "stopped by a debugger"},
                                                          {'Z', "dead, not reaped"}};
  for (const auto& [letter, name] : kNames)
    if (letter == state) return name;
  return "in state";
}

/// "pid (any name, even with ) and blanks) S ppid ...", where field 22 is the start.
ProcStat parse_stat(const std::string& text) {
  ProcStat stat;
  std::size_t at = text.rfind(')');
  if (at == std::string::npos || at + 4 >= text.size()) return stat;
  stat.state = text[at + 2];
  std::string_view rest = std::string_view(text).substr(at + 4);
  stat.parent = take_number<pid_t>(rest).value_or(0);
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  rest = std::string_view(text).substr(std::min(at, text.size() - 1) + 1);
  stat.start = take_number<std::uint64_t>(rest).value_or(0);
  return stat;
}

}  // namespace

std::string read_proc_file(const std::string& folder, const char* name) {
  const std::string path = folder + "/" + name;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (file) read_rest(file.get(), text, kMaxProcFile);
  return text;
}

std::vector<pid_t> numbers_in(const std::string& folder) {
  std::vector<pid_t> numbers;
  std::error_code ec;
  for (std::filesystem::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec))
    if (const auto number = parse_number<pid_t>(at->path().filename().string()))
      numbers.push_back(*number);
  return numbers;
}

bool is_mine(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && st.st_uid == ::geteuid();
}

ProcStat stat_of(std::int64_t pid) {
  return parse_stat(read_proc_file(fmt::format("/proc/{}", pid), "stat"));
}

std::string kernel_state(const std::string& folder, pid_t id) {
  const std::string stat = read_proc_file(folder, "stat");
  const std::size_t open = stat.find('(');
  const std::size_t close = stat.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return {};
  const char state = parse_stat(stat).state;
  std::string out = fmt::format("{} (pid {}): {} ({})", stat.substr(open + 1, close - open - 1), id,
                                name_of_state(state), state);
  // "0": it runs, or the kernel hides it.
  const std::string where = read_proc_file(folder, "wchan");
  if (!where.empty() && where != "0") out += " in " + where;
  return out;
}

std::uint32_t usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0)
    return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&cores)));
  return std::max(1U, std::thread::hardware_concurrency());  // more than 1024
}

}  // namespace dt::io
