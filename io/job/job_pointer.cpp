#include "io/job/job_pointer.h"

#include <nlohmann/json.hpp>

#include "io/job/spec.h"
#include "io/json_number.h"
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
    const auto json = nlohmann::json::parse(**text);
    JobPointer pointer;
    json.at("job").get_to(pointer.job);
    json.at("master").get_to(pointer.master);
    pointer.pid = whole_number<std::int64_t>(json.at("pid"));
    json.at("socket").get_to(pointer.socket);
    json.at("state_dir").get_to(pointer.state_dir);
    if (const auto ended = json.find("ended"); ended != json.end() && ended->is_object())
      pointer.ended =
          JobPointer::Ended{whole_number<int>(ended->at("exit_code")), ended->at("message")};
    return pointer;
  } catch (const std::exception& e) {
    return fail(ErrorKind::kInvalid, "{}: {}", path, e.what());
  }
}

}  // namespace dt::io
