#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/protocol/gpu_health.h"
#include "io/fd.h"
#include "io/job/master_folders.h"
#include "io/last_words.h"
#include "io/line_prefixer.h"
#include "io/program_output.h"
#include "io/read_file.h"
#include "io/subprocess.h"
#include "launcher/agent/cgroup.h"
#include "launcher/agent/check_answers.h"
#include "launcher/agent/machine.h"
#include "launcher/mount.h"

namespace dt::launcher {
namespace {

using namespace preflight;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kVersionDeadline = std::chrono::seconds(5);
constexpr auto kHashDeadline = std::chrono::seconds(20);
constexpr auto kDriverDeadline = std::chrono::seconds(5);
constexpr auto kGpuCheckDeadline = std::chrono::seconds(30);
constexpr auto kStale = std::chrono::seconds(5);
constexpr auto kSeeAgain = std::chrono::milliseconds(20);
constexpr int kNoUsableGpu = 77;  ///< dtgpucheck's exit code.

std::string sha256_of(const std::string& path) {
  constexpr std::size_t kDigits = 64;
  const auto sum =
      io::program_output({.argv = {"sha256sum", "--", path}, .deadline = kHashDeadline});
  if (!sum || !sum->status.clean()) return {};
  // A name with unusual letters has a backslash before the line.
  const std::size_t at = sum->out.starts_with('\\') ? 1 : 0;
  return sum->out.size() >= at + kDigits ? sum->out.substr(at, kDigits) : std::string();
}

std::string version_of(const std::string& program) {
  auto said = io::program_output({.argv = {program, "--version"}, .deadline = kVersionDeadline});
  if (!said) return {};
  const std::string& text = said->out.empty() ? said->words : said->out;
  return io::plain(text.substr(0, text.find('\n')));
}

/// As execvp finds it. Empty: it does not.
std::string resolve(const AskCommand& question) {
  const auto runs = [](const std::string& path) {
    struct stat file {};
    return ::stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) &&
           ::access(path.c_str(), X_OK) == 0;
  };
  const auto from_cwd = [&question](const std::string& path) {
    return path.starts_with('/') ? path : question.cwd + "/" + path;
  };
  if (question.word.find('/') != std::string::npos) {
    std::string path = from_cwd(question.word);
    return runs(path) ? path : std::string();
  }
  const std::string own = io::variable("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  std::string folders = question.path.empty() ? own : question.path;
  folders += ":" + io::program_folder().string();  // as a worker's PATH ends
  if (!question.first.empty()) folders = question.first + ":" + folders;
  std::istringstream all(folders);
  for (std::string folder; std::getline(all, folder, ':');)
    if (std::string path = from_cwd(folder) + "/" + question.word; runs(path)) return path;
  return {};
}

/// Programs that print a version and do nothing else when they are asked for it. What others do
/// with --version is not known.
bool is_interpreter(const std::string& word) {
  const std::string name = fs::path(word).filename().string();
  return name.starts_with("python") || name == "perl" || name == "ruby" || name == "node" ||
         name == "julia" || name == "bash" || name == "Rscript";
}

FileFacts look_at(const std::string& name, const std::string& cwd) {
  FileFacts facts{name, "", ""};
  const std::string path = name.starts_with('/') ? name : cwd + "/" + name;
  const io::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    facts.why = fmt::format("{}: {}", path, std::strerror(errno));
    return facts;
  }
  facts.sha256 = sha256_of(path);
  if (facts.sha256.empty()) facts.why = fmt::format("{}: sha256sum failed", path);
  return facts;
}

std::uint64_t room_at(std::string path) {
  struct statvfs room {};
  while (::statvfs(path.c_str(), &room) != 0) {
    if (path.empty() || path == "/") return 0;
    path = fs::path(path).parent_path().string();
  }
  return static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize;
}

std::uint64_t limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0 ||
      limit.rlim_max == RLIM_INFINITY)
    return 0;
  return limit.rlim_max;
}

/// kB of a line of /proc/meminfo, as bytes.
std::uint64_t meminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":"))
      return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
  return 0;
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;  // not there, or "max"
}

/// Bytes of files in a cgroup's memory, which make room when it is needed; of one without memory 0.
std::uint64_t cached_in(const std::string& folder) {
  std::ifstream file(folder + "/memory.stat");
  std::uint64_t sum = 0;
  std::string key;
  for (std::uint64_t value = 0; file >> key >> value;)
    if (key == "inactive_file" || key == "active_file") sum += value;
  return sum;
}

/// What is left within the limits of this process's cgroup and those above it; none: no limit.
std::optional<std::uint64_t> left_in_cgroup(const std::string& controller, const char* most,
                                            const char* used, const char* most_v1,
                                            const char* used_v1) {
  std::optional<std::uint64_t> least;
  for (const auto& [folder, is_v2] : cgroup_folders(controller)) {
    const auto limit = number_in(folder + "/" + (is_v2 ? most : most_v1));
    const auto now = number_in(folder + "/" + (is_v2 ? used : used_v1));
    if (!limit || !now) continue;
    const std::uint64_t room = *limit + (controller == "memory" ? cached_in(folder) : 0);
    const std::uint64_t left = room > *now ? room - *now : 0;
    least = std::min(least.value_or(left), left);
  }
  return least;
}

std::uint32_t microseconds_since(Clock::time_point start) {
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count());
}

/// Waits until the master's word is there; a network file system may be late.
bool sees_word(const AskVolume& question) {
  const auto deadline = Clock::now() + kStale;
  for (;;) {
    if (io::end_of_file(question.probe + "/master") == question.word) return true;
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(kSeeAgain);  // tidy: allow (a network file system tells no reader)
  }
}

void write_word(const AskVolume& question, VolumeFacts& facts) {
  const std::string path = question.probe + "/" + question.own;
  const io::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file && io::write_all(file.get(), question.own_word) && ::fsync(file.get()) == 0) return;
  const int number = errno;
  facts.state = number == EROFS                       ? VolumeState::kReadOnly
                : number == EACCES || number == EPERM ? VolumeState::kDenied
                                                      : VolumeState::kFailed;
  facts.why = fmt::format("{}: {}", path, std::strerror(number));
}

}  // namespace

MachineSaid find_machine(const AskMachine&) {
  MachineSaid said;
  MachineFacts& facts = said.facts;
  constexpr std::size_t kJobLetters = 20;
  facts.cores = this_machine().cores;
  facts.memory = meminfo("MemTotal");
  facts.memory_free = meminfo("MemAvailable");
  if (const auto left = left_in_cgroup("memory", "memory.max", "memory.current",
                                       "memory.limit_in_bytes", "memory.usage_in_bytes"))
    facts.memory_free = std::min(facts.memory_free, *left);
  facts.shm_free = room_at("/dev/shm");
  facts.runtime_folder = io::runtime_home(kJobLetters).path;
  facts.runtime_free = room_at(facts.runtime_folder);
  facts.open_files = limit_of(RLIMIT_NOFILE);
  facts.locked_memory = limit_of(RLIMIT_MEMLOCK);
  facts.processes_left =
      left_in_cgroup("pids", "pids.max", "pids.current", "pids.max", "pids.current").value_or(0);
  return said;
}

CommandSaid find_command(const AskCommand& question) {
  CommandSaid said;
  CommandFacts& facts = said.facts;
  if (!question.word.empty()) {
    facts.path = resolve(question);
    if (facts.path.empty()) {
      const bool is_path = question.word.find('/') != std::string::npos;
      facts.why = fmt::format("{}: {}", question.word,
                              is_path ? "there is no such program" : "it is not in PATH there");
    } else {
      facts.sha256 = sha256_of(facts.path);
      if (is_interpreter(question.word)) facts.version = version_of(facts.path);
    }
  }
  for (const std::string& name : question.files) facts.files.push_back(look_at(name, question.cwd));
  return said;
}

VolumeSaid find_volume(const AskVolume& question) {
  VolumeSaid said;
  VolumeFacts& facts = said.facts;
  struct stat folder {};
  if (::stat(question.folder.c_str(), &folder) != 0 || !S_ISDIR(folder.st_mode)) {
    facts.state =
        errno == ENOENT || errno == ENOTDIR ? VolumeState::kMissing : VolumeState::kFailed;
    facts.why = std::strerror(errno);
    return said;
  }
  facts.mount = mount_of(question.folder);
  auto start = Clock::now();
  if (!sees_word(question)) {
    facts.state = VolumeState::kOther;
    return said;
  }
  facts.read_us = microseconds_since(start);
  start = Clock::now();
  write_word(question, facts);
  facts.write_us = microseconds_since(start);
  return said;
}

GpusSaid find_gpus(const AskGpus&) {
  GpusSaid said;
  GpuFacts& facts = said.facts;
  const auto first_frame = [](const std::string& text) {
    wire::FrameDecoder frames;
    frames.feed(text);
    return frames.next().value_or(std::nullopt);
  };
  const auto has_frame = [&](const std::string& text) { return first_frame(text).has_value(); };
  const auto driver = io::program_output(
      {.argv = {"/proc/self/exe", "--gpus"}, .is_enough = has_frame, .deadline = kDriverDeadline});
  const auto frame = driver ? first_frame(driver->out) : std::nullopt;
  if (!frame) {
    // It ends with 0 where there is no driver.
    if (!driver || !driver->status.clean())
      facts.troubles.emplace_back("the GPU driver does not answer");
    return said;
  }
  const auto health = wire::parse<GpuHealth>(frame->body);
  if (!health) return said;
  if (!health->trouble.empty()) facts.troubles.push_back(health->trouble);
  for (const GpuReport& gpu : health->gpus) {
    facts.names.push_back(gpu.name);
    for (const std::string& trouble : troubles_of(gpu))
      facts.troubles.push_back(fmt::format("GPU {}: {}", gpu.index, trouble));
  }
  facts.driver = io::first_line("/proc/driver/nvidia/version");
  const std::string check = (io::program_folder() / "dtgpucheck").string();
  if (facts.names.empty() || !facts.troubles.empty() || ::access(check.c_str(), X_OK) != 0)
    return said;
  const auto checked =
      io::program_output({.argv = {check, "--timeout", "20"}, .deadline = kGpuCheckDeadline});
  const int code = checked ? checked->status.shell_code() : -1;
  if (code != 0 && code != kNoUsableGpu)
    facts.troubles.push_back("dtgpucheck: " +
                             io::last_line(checked ? checked->words : checked.error().message));
  return said;
}

}  // namespace dt::launcher
