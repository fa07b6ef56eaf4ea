#include "io/job/job_pointer.h"

#include <nlohmann/json.hpp>

#include "io/job/spec.h"
#include "io/json_field.h"
#include "io/read_file.h"

namespace dt::io {

Result<JobPointer> read_job_pointer(const std::string& job_dir) {
  const std::string path = pointer_file(job_dir);
  const auto text = read_file_if_there(path);
  if (!text) return tl::unexpected(text.error());
  if (!*text)
    return fail(ErrorKind::kUnavailable,
                "no job was ever started in {}; give its folder with --job-dir", job_dir);
  try {
    const auto json = json_object(**text);
    JobPointer pointer;
    pointer.job = text_field(json, "job");
    pointer.master = text_field(json, "master");
    pointer.pid = number_field<std::int64_t>(json, "pid");
    pointer.socket = text_field(json, "socket");
    pointer.state_dir = text_field(json, "state_dir");
    if (const auto ended = json.find("ended"); ended != json.end() && ended->is_object())
      pointer.ended =
          JobPointer::Ended{number_field<int>(*ended, "exit_code"), text_field(*ended, "message")};
    return pointer;
  } catch (const std::exception& e) {
    return fail(ErrorKind::kInvalid,
                "{} cannot be understood ({}): if no job runs in this folder, rm {}", path,
                e.what(), path);
  }
}

}  // namespace dt::io
