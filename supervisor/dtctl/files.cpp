#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "io/job/job_pointer.h"
#include "io/job/spec.h"
#include "io/line_prefixer.h"
#include "io/log.h"
#include "io/read_file.h"
#include "supervisor/dtctl/commands.h"
#include "supervisor/dtctl/file_tail.h"
#include "supervisor/dtctl/job_standing.h"

namespace dt::supervisor::ctl {

using namespace std::chrono_literals;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kLongestEvent = std::size_t{16} << 20;
constexpr auto kLook = 500ms;  ///< Between looks at a growing file.

/// Passes a file's text to `show`, piece by piece, and follows it while the job runs if wanted. A
/// log's rotated part (--log-limit) comes first.
io::awaitable<int> show_file(Arguments args, std::string path,
                             std::function<void(std::string)> show) {
  const std::string older = path + io::kOlder;
  std::error_code ec;
  const bool has_older = fs::exists(older, ec);
  if (!has_older && !fs::exists(path, ec)) co_return complain(errno_error(ENOENT, path));
  const auto show_rest = [&show](FileTail& tail) {
    for (std::string piece; !(piece = tail.more()).empty();) show(std::move(piece));
  };
  if (has_older) {
    FileTail tail(older);
    show_rest(tail);
  }
  FileTail tail(path);
  for (;;) {
    const auto job = io::read_job_pointer(args.job_dir);
    const bool goes_on = args.follow && job && !job->ended;
    show_rest(tail);
    std::fflush(stdout);
    if (!goes_on) co_return kExitOk;
    co_await io::sleep_for(kLook);
  }
}

std::string last_lines(const std::string& path, int lines) {
  std::string text = io::end_of_file(path);
  std::size_t at = text.size();
  for (int i = 0; at != 0 && at != text.npos && i <= lines; ++i) {
    at = text.rfind('\n', at - 1);
    if (at == text.npos) return text;
  }
  return text.substr(at == 0 ? 0 : at + 1);
}

bool is_absent(const std::string& path) {
  return ::access(path.c_str(), F_OK) != 0 && errno == ENOENT;
}

int show_all_logs(const std::string& folder) {
  std::error_code ec;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, ec)) files.push_back(entry.path());
  if (ec) return complain(errno_error(ec.value(), folder));
  std::ranges::sort(files);
  for (const auto& file : files)
    fmt::print("==> {} <==\n{}\n", io::printable(file.string()),
               screen_text(last_lines(file.string(), 10)));
  return kExitOk;
}

/// "2026-11-20 22:46:47 epoch 3: text" of an event's line; the line itself if it is no event.
std::string event_text(const std::string& line) {
  const json event = json::parse(line, nullptr, false);
  if (!event.is_object() || !event.value("text", json("")).is_string() ||
      !event.value("time_ns", json(0)).is_number_integer())
    return io::printable(line);
  const std::int64_t ns = event.value("time_ns", std::int64_t{0});
  const auto seconds = static_cast<std::time_t>(ns / 1'000'000'000);
  char when[32] = "";
  std::tm local{};
  if (::localtime_r(&seconds, &local)) std::strftime(when, sizeof when, "%F %T", &local);
  const std::string text = io::printable(event.value("text", line));
  const auto epoch = event.find("epoch");
  if (epoch != event.end() && epoch->is_number())
    return fmt::format("{} epoch {}: {}", when, epoch->dump(), text);
  return fmt::format("{} {}", when, text);
}

}  // namespace

io::awaitable<int> logs(Arguments args) {
  const io::JobPointer job = need(read_pointer(*args.volume), kExitNoJob);
  const std::string folder = fmt::format("{}/{}/logs", io::marker_dir(args.job_dir), job.job);
  if (args.words.size() > 1) throw wrong_words(args);
  if (args.words.empty()) co_return show_all_logs(folder);
  std::string name = args.words[0];
  if (name.find('/') != name.npos) throw Usage{fmt::format("{}: a name such as worker-3", name)};
  if (name.find_first_not_of("0123456789") == name.npos) name = "worker-" + name;
  if (name.ends_with(".log")) name.resize(name.size() - 4);
  const std::string file = fmt::format("{}/{}.log", folder, name);
  if (!args.follow && is_absent(file) && is_absent(file + io::kOlder))
    co_return complain({ErrorKind::kUnavailable,
                        fmt::format("{} has printed nothing, or is none of job {}: there is no {}",
                                    name, job.job, file)});
  ScreenText screen;
  const std::function<void(std::string)> show = [&screen](std::string text) {
    fmt::print("{}", screen.feed(std::move(text)));
  };
  auto shown = show_file(args, file, show);
  const int code = co_await std::move(shown);
  fmt::print("{}", screen.finish());
  co_return code;
}

io::awaitable<int> events(Arguments args) {
  const io::JobPointer job = need(read_pointer(*args.volume), kExitNoJob);
  std::string rest;
  const std::function<void(std::string)> show = [&](const std::string& text) {
    rest += text;
    for (std::size_t end; (end = rest.find('\n')) != std::string::npos;) {
      const std::string line = rest.substr(0, end);
      rest.erase(0, end + 1);
      fmt::print("{}\n", args.json ? screen_json(line) : event_text(line));
    }
    if (rest.size() > kLongestEvent) rest.clear();  // not a line of ours: those are shorter
  };
  auto shown = show_file(args, io::events_file(args.job_dir, job.job), show);
  co_return co_await std::move(shown);
}

}  // namespace dt::supervisor::ctl
