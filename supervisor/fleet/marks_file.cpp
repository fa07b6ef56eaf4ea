#include "supervisor/fleet/marks_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/fd.h"
#include "io/json_field.h"
#include "io/read_file.h"

namespace dt::supervisor {

using nlohmann::json;

namespace {

constexpr int kVersion = 1;

/// Hosts whose last line in host_worker_log is REMOVED.
std::set<std::string> removed_hosts(const std::string& job_dir) {
  std::set<std::string> removed;
  std::istringstream log(io::read_file(job_dir + "/host_worker_log").value_or(""));
  std::string number, change, host, time;
  while (log >> number >> change >> host >> time) {
    if (change == "REMOVED")
      removed.insert(host);
    else
      removed.erase(host);
  }
  return removed;
}

}  // namespace

Result<MarksFile> MarksFile::open(const std::string& job_dir, const std::string& job) {
  MarksFile marks(fmt::format("{}/.dtlaunch/{}/fleet.json", job_dir, job));
  const auto text = io::read_file_if_there(marks.path_);
  if (!text) return tl::unexpected(text.error());
  if (!*text) return marks;
  if (const auto parsed = marks.parse(**text); !parsed) {
    marks.machines_.clear();
    marks.removed_ = removed_hosts(job_dir);
    marks.loss_ = fmt::format("{} is lost: {}; hosts that were removed are not added by themselves",
                              marks.path_, parsed.error().message);
  }
  return marks;
}

Result<void> MarksFile::parse(const std::string& text) {
  try {
    const json all = io::json_object(text);
    if (io::number_field<int>(all, "version") != kVersion)
      throw std::runtime_error("it is of another version");
    for (const json& entry : io::field(all, "machines")) {
      Machine machine{.id = io::text_field(entry, "id"),
                      .state = MachineState::kReady,
                      .host = io::text_field(entry, "host")};
      const auto mark = mark_of(io::text_field(entry, "mark"));
      if (!mark) throw std::runtime_error("\"mark\" is unknown");
      machine.mark = *mark;
      machine.is_asked = io::field(entry, "asked") == true;
      if (io::field(entry, "let_go") == true) let_go_.insert(machine.id);
      machines_[machine.id] = machine;
    }
    const json& resize = io::field(all, "resize");
    resize_ = {.id = io::number_field<std::int64_t>(resize, "id"),
               .from = io::number_field<std::uint64_t>(resize, "from"),
               .to = io::number_field<std::uint64_t>(resize, "to"),
               .said = io::text_field(resize, "said")};
    return {};
  } catch (const std::exception& e) {
    return fail(ErrorKind::kProtocol, "{}", e.what());
  }
}

std::vector<Machine> MarksFile::known() const {
  std::vector<Machine> all;
  for (const auto& [id, machine] : machines_)
    if (!let_go_.contains(id)) all.push_back(machine);
  return all;
}

bool MarksFile::knows_host(const std::string& host) const {
  return std::ranges::any_of(machines_, [&](const auto& entry) {
    return entry.second.host == host && entry.second.mark != Mark::kBase &&
           !let_go_.contains(entry.first);
  });
}

void MarksFile::apply(std::vector<Machine>& listed) {
  for (Machine& machine : listed) {
    auto at = machines_.find(machine.id);
    if (at == machines_.end() && removed_.contains(machine.host)) {
      at = machines_.emplace(machine.id, machine).first;
      at->second.mark = Mark::kRemoved;
    }
    if (at == machines_.end()) continue;
    machine.mark = std::max(machine.mark, at->second.mark);
    machine.is_asked = machine.is_asked || at->second.is_asked;
  }
  removed_.clear();
  std::erase_if(let_go_, [&](const std::string& id) {
    if (std::ranges::find(listed, id, &Machine::id) != listed.end()) return false;
    machines_.erase(id);
    return true;
  });
}

Result<void> MarksFile::note_done(const FleetAction& action, Machine machine) {
  if (const auto* set = std::get_if<SetMark>(&action)) {
    machine.mark = set->mark;
    machines_[machine.id] = std::move(machine);
  } else if (std::holds_alternative<AddHost>(action)) {
    machines_.try_emplace(machine.id, machine);
  } else if (const auto* go = std::get_if<LetGo>(&action)) {
    if (machines_.contains(go->id)) let_go_.insert(go->id);
  } else if (const auto* drop = std::get_if<DropHost>(&action)) {
    // A machine that is to be let go is known until it has gone.
    std::erase_if(machines_, [drop](const auto& entry) {
      return entry.second.host == drop->host && !entry.second.is_asked;
    });
  } else {
    return {};
  }
  return save();
}

Result<void> MarksFile::begin_resize(BegunResize resize, const std::vector<Machine>& asked) {
  resize_ = std::move(resize);
  for (const Machine& machine : asked)
    machines_.try_emplace(machine.id, machine).first->second.is_asked = true;
  return save();
}

Result<void> MarksFile::save() const {
  json all{
      {"version", kVersion},
      {"machines", json::array()},
      {"resize",
       {{"id", resize_.id}, {"from", resize_.from}, {"to", resize_.to}, {"said", resize_.said}}}};
  for (const auto& [id, machine] : machines_)
    all["machines"].push_back({{"id", id},
                               {"host", machine.host},
                               {"mark", mark_text(machine.mark)},
                               {"asked", machine.is_asked},
                               {"let_go", let_go_.contains(id)}});
  const std::string text = all.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
  const std::string next = path_ + ".new";
  const io::Fd file(
      ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file) return tl::unexpected(errno_error(errno, "open " + next));
  if (!io::write_all(file.get(), text) || ::fsync(file.get()) != 0 ||
      ::rename(next.c_str(), path_.c_str()) != 0)
    return tl::unexpected(errno_error(errno, "write " + path_));
  return {};
}

}  // namespace dt::supervisor
