#include "supervisor/dtctl/exec_output.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/files/ranges.h"
#include "core/protocol/exit_code.h"
#include "io/line_prefixer.h"

namespace dt::supervisor {
namespace {

/// Whole, so that no line of the other stream comes into the middle of one.
void print(std::FILE* file, const std::string& text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

class Lines final : public ExecOutput {
 public:
  void take(const Host& host, bool is_stderr, std::string_view bytes) override {
    print(is_stderr ? stderr : stdout, of(host, is_stderr).feed(bytes));
  }
  void end(const Host& host, const launcher::HostEnd&) override {
    print(stdout, of(host, false).finish());
    print(stderr, of(host, true).finish());
    streams_.erase(host);
  }

 private:
  struct Streams {
    io::LinePrefixer out;
    io::LinePrefixer err;
  };
  io::LinePrefixer& of(const Host& host, bool is_stderr) {
    auto at = streams_.find(host);
    if (at == streams_.end()) {
      const io::LinePrefixer lines(fmt::format("[{}] ", host));
      at = streams_.emplace(host, Streams{lines, lines}).first;
    }
    return is_stderr ? at->second.err : at->second.out;
  }
  std::map<Host, Streams> streams_;
};

/// Output that waits for its end, up to kMostKept.
class Kept {
 public:
  void add(std::string_view bytes) {
    const std::size_t room = kMostKept - text_.size();
    text_ += bytes.substr(0, room);
    left_out_ += bytes.size() - std::min(room, bytes.size());
  }
  [[nodiscard]] std::string text() const {
    if (left_out_ == 0) return text_;
    return fmt::format("{}\n({} bytes more were left out)\n", text_, left_out_);
  }

 private:
  std::string text_;
  std::size_t left_out_ = 0;
};

class Folded final : public ExecOutput {
 public:
  void take(const Host& host, bool is_stderr, std::string_view bytes) override {
    Streams& streams = running_[host];
    streams.kept.add((is_stderr ? streams.err : streams.out).feed(bytes));
  }
  void end(const Host& host, const launcher::HostEnd&) override {
    Streams& streams = running_[host];
    streams.kept.add(streams.out.finish());
    streams.kept.add(streams.err.finish());
    if (std::string text = streams.kept.text(); !text.empty())
      groups_[std::move(text)].push_back(host);
    running_.erase(host);
  }
  void finish() override {
    // The largest group is what is usual; those that follow are news.
    std::vector<const Group*> order;
    for (const Group& group : groups_) order.push_back(&group);
    std::ranges::stable_sort(order, std::ranges::greater(),
                             [](const Group* group) { return group->second.size(); });
    for (const Group* group : order) {
      io::LinePrefixer lines(
          fmt::format("[{}] ({}): ", in_few_words(group->second), group->second.size()));
      print(stdout, lines.feed(group->first) + lines.finish());
    }
  }

 private:
  using Group = std::pair<const std::string, std::vector<Host>>;
  struct Streams {
    io::LinePrefixer out{""};
    io::LinePrefixer err{""};
    Kept kept;
  };
  std::map<Host, Streams> running_;
  std::map<std::string, std::vector<Host>> groups_;
};

class Json final : public ExecOutput {
 public:
  void take(const Host& host, bool is_stderr, std::string_view bytes) override {
    Streams& streams = running_[host];
    (is_stderr ? streams.err : streams.out).add(bytes);
  }
  void end(const Host& host, const launcher::HostEnd& how) override {
    nlohmann::ordered_json line{{"host", to_string(host)}};
    if (how.exit_code) line["exit_code"] = *how.exit_code;
    if (!how.why.empty()) line["error"] = how.why;
    if (how.is_late) line["late"] = true;
    line["stdout"] = running_[host].out.text();
    line["stderr"] = running_[host].err.text();
    running_.erase(host);
    // Other characters than ASCII as escapes: no terminal obeys them.
    print(stdout,
          line.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }

 private:
  struct Streams {
    Kept out;
    Kept err;
  };
  std::map<Host, Streams> running_;
};

}  // namespace

std::unique_ptr<ExecOutput> exec_lines() { return std::make_unique<Lines>(); }
std::unique_ptr<ExecOutput> exec_folded() { return std::make_unique<Folded>(); }
std::unique_ptr<ExecOutput> exec_json() { return std::make_unique<Json>(); }

void ExecSummary::end(const Host& host, const launcher::HostEnd& how) {
  ++hosts_;
  if (!how.exit_code || !how.why.empty()) unreached_.push_back(how.why);
  if (!how.exit_code) return;
  by_code_[*how.exit_code].push_back(host);
  if (how.is_late) late_.push_back(host);
}

int ExecSummary::exit_code() const {
  if (!unreached_.empty()) return kExitUnreachable;
  return by_code_.empty() ? kExitOk : by_code_.rbegin()->first;
}

std::string ExecSummary::text() const {
  std::string lines;
  for (const auto& [code, hosts] : by_code_)
    if (code != 0)
      lines += fmt::format("dtctl: exit code {} on {} of {} hosts: {}\n", code, hosts.size(),
                           hosts_, in_few_words(hosts));
  if (!late_.empty())
    lines += fmt::format("dtctl: ended after --timeout: {}\n", in_few_words(late_));
  if (!unreached_.empty())
    lines +=
        fmt::format("dtctl: {} of {} hosts not reached, or lost:\n", unreached_.size(), hosts_);
  for (const std::string& why : unreached_) lines += fmt::format("  {}\n", io::printable(why));
  return lines;
}

}  // namespace dt::supervisor
