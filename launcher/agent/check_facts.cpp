#include "launcher/agent/check_facts.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/protocol/gpu_health.h"
#include "io/fd.h"
#include "io/job/master_folders.h"
#include "io/subprocess.h"
#include "launcher/agent/cgroup.h"
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

struct ProgramOutput {
  int exit_code = -1;  ///< 128 + signal; -1: it did not end in time, or never began.
  std::string text;
};

/// The output of a program of this host, which is killed after `deadline` or once `is_enough`.
ProgramOutput output_of(const std::vector<std::string>& argv, Clock::duration deadline,
                        bool (*is_enough)(const std::string&) = nullptr) {
  ProgramOutput output;
  auto pipe = io::make_pipe();
  const io::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!pipe || !null) return output;
  auto program = io::Subprocess::start(argv, {null.get(), pipe->write.get(), pipe->write.get()});
  if (!program) return output;
  pipe->write.reset();
  const auto until = Clock::now() + deadline;
  std::array<char, 4096> piece{};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd reader{pipe->read.get(), POLLIN, 0};
    if (left <= 0 || ::poll(&reader, 1, static_cast<int>(left)) == 0) return output;
    const ssize_t n = ::read(pipe->read.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    output.text.append(piece.data(), static_cast<std::size_t>(n));
    if (is_enough != nullptr && is_enough(output.text)) return output;
  }
  const ExitStatus status = program->wait();
  output.exit_code = status.signal != 0 ? 128 + status.signal : status.code;
  return output;
}

std::string first_line_of(const std::string& text) { return text.substr(0, text.find('\n')); }
std::string last_line_of(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

std::string sha256_of(const std::string& path) {
  constexpr std::size_t kDigits = 64;
  const ProgramOutput sum = output_of({"sha256sum", "--", path}, kHashDeadline);
  // A name with unusual letters has a backslash before the line.
  const std::size_t at = sum.text.starts_with('\\') ? 1 : 0;
  return sum.exit_code == 0 && sum.text.size() >= at + kDigits ? sum.text.substr(at, kDigits)
                                                               : std::string();
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
  const char* own = std::getenv("PATH");
  std::string folders = !question.path.empty() ? question.path
                        : own != nullptr       ? std::string(own)
                                               : "/usr/local/bin:/usr/bin:/bin";
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

std::string file_text(const std::string& path) {
  const io::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  std::array<char, 256> text{};
  const ssize_t n = ::read(file.get(), text.data(), text.size());
  return {text.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
}

std::uint32_t microseconds_since(Clock::time_point start) {
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count());
}

/// Waits until the master's word is there; a network file system may be late.
bool sees_word(const AskVolume& question) {
  const auto deadline = Clock::now() + kStale;
  for (;;) {
    if (file_text(question.probe + "/master") == question.word) return true;
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
      if (is_interpreter(question.word))
        facts.version = first_line_of(output_of({facts.path, "--version"}, kVersionDeadline).text);
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
  const auto has_frame = [](const std::string& text) {
    wire::FrameDecoder frames;
    frames.feed(text);
    const auto frame = frames.next();
    return frame && frame->has_value();
  };
  const ProgramOutput driver = output_of({"/proc/self/exe", "--gpus"}, kDriverDeadline, +has_frame);
  wire::FrameDecoder frames;
  frames.feed(driver.text);
  const auto frame = frames.next();
  if (!frame || !*frame) {
    // It ends with 0 where there is no driver.
    if (driver.exit_code != 0) facts.troubles.emplace_back("the GPU driver does not answer");
    return said;
  }
  const auto health = wire::parse<GpuHealth>((*frame)->body);
  if (!health) return said;
  if (!health->trouble.empty()) facts.troubles.push_back(health->trouble);
  for (const GpuReport& gpu : health->gpus) {
    facts.names.push_back(gpu.name);
    for (const std::string& trouble : troubles_of(gpu))
      facts.troubles.push_back(fmt::format("GPU {}: {}", gpu.index, trouble));
  }
  std::ifstream version("/proc/driver/nvidia/version");
  std::getline(version, facts.driver);
  const std::string check = (io::program_folder() / "dtgpucheck").string();
  if (facts.names.empty() || !facts.troubles.empty() || ::access(check.c_str(), X_OK) != 0)
    return said;
  const ProgramOutput checked = output_of({check, "--timeout", "20"}, kGpuCheckDeadline);
  if (checked.exit_code != 0 && checked.exit_code != kNoUsableGpu)
    facts.troubles.push_back("dtgpucheck: " + last_line_of(checked.text));
  return said;
}

}  // namespace dt::launcher
