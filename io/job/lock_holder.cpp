#include "io/job/lock_holder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "io/json_field.h"
#include "io/process_state.h"
#include "io/read_file.h"

namespace dt::io {

std::uint64_t process_start(std::int64_t pid) {
  const ProcStat stat = stat_of(pid);
  return stat.lives() ? stat.start : 0;
}

bool same_boot(const LockHolder& a, const LockHolder& b) {
  if (a.boot_id != b.boot_id) return false;
  const bool are_known = a.pid_namespace != 0 && b.pid_namespace != 0;
  return are_known ? a.pid_namespace == b.pid_namespace : a.host == b.host;
}

LockHolder this_process(std::string job) {
  LockHolder me;
  me.job = std::move(job);
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  me.host = host;
  me.pid = ::getpid();
  me.machine = first_line("/etc/machine-id");
  me.boot_id = first_line("/proc/sys/kernel/random/boot_id");
  me.start = process_start(me.pid);
  struct stat space {};
  if (::stat("/proc/self/ns/pid", &space) == 0) me.pid_namespace = space.st_ino;
  return me;
}

std::string to_json(const LockHolder& holder) {
  const nlohmann::json json{{"job", holder.job},
                            {"host", holder.host},
                            {"machine", holder.machine},
                            {"boot_id", holder.boot_id},
                            {"pid", holder.pid},
                            {"start", holder.start},
                            {"pid_namespace", holder.pid_namespace}};
  return json.dump() + "\n";
}

Result<LockHolder> lock_from_json(const std::string& text) {
  try {
    const auto json = json_object(text);
    LockHolder holder;
    holder.job = text_field(json, "job");
    holder.host = text_field(json, "host");
    holder.machine = text_field(json, "machine");
    holder.boot_id = text_field(json, "boot_id");
    holder.pid = number_field<std::int64_t>(json, "pid");
    holder.start = number_field<std::uint64_t>(json, "start");
    if (json.contains("pid_namespace"))
      holder.pid_namespace = number_field<std::uint64_t>(json, "pid_namespace");
    return holder;
  } catch (const std::exception& e) {
    return fail(ErrorKind::kInvalid, "this is no lock file of dtlaunch ({})", e.what());
  }
}

bool is_stale(const LockHolder& holder, const LockHolder& me) {
  if (same_boot(holder, me))
    return holder.job == me.job || process_start(holder.pid) != holder.start;
  return holder.boot_id != me.boot_id && holder.host == me.host && !me.machine.empty() &&
         holder.machine == me.machine;
}

}  // namespace dt::io
