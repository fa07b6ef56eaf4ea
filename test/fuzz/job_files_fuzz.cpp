/// Any bytes as the JSON files of a job: its spec, its folder's pointer file and lock. Refused with
/// a reason, or understood; a spec or lock, written again, is the same one.

#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "io/job/job_pointer.h"
#include "io/job/lock_holder.h"
#include "io/job/spec.h"
#include "test/fuzz/target.h"

using namespace dt;

namespace {

/// A job folder of this process, removed at its end.
struct JobFolder {
  std::string path = "/tmp/dt-job-fuzz-XXXXXX";
  JobFolder() {
    DT_CHECK(::mkdtemp(path.data()), "a temporary folder");
    std::filesystem::create_directory(io::marker_dir(path));
  }
  ~JobFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;
};

void read_spec(const std::string& text) {
  const auto spec = io::spec_from_json(text);
  if (!spec) return;
  const std::string written = to_json(*spec);
  const auto again = io::spec_from_json(written);
  DT_CHECK(again && to_json(*again) == written, "a spec that changes when it is written again");
}

void read_lock(const std::string& text) {
  const auto holder = io::lock_from_json(text);
  if (!holder) return;
  DT_CHECK(io::lock_from_json(to_json(*holder)) == *holder,
           "a lock that changes when it is written again");
  (void)is_stale(*holder, io::this_process("job"));
}

}  // namespace

DT_FUZZ_TARGET(job_files)
(const std::uint8_t* bytes, std::size_t size) {
  static const JobFolder kFolder;
  const std::string in(bytes, bytes + size);
  read_spec(in);
  read_lock(in);
  // The same as changes to a good spec: not every field need be guessed.
  if (const auto changes = nlohmann::json::parse(in, nullptr, false); changes.is_object()) {
    auto whole = nlohmann::json::parse(to_json(io::JobSpec()));
    whole.merge_patch(changes);
    read_spec(whole.dump());
  }
  std::ofstream(io::pointer_file(kFolder.path), std::ios::binary | std::ios::trunc) << in;
  const auto pointer = io::read_job_pointer(kFolder.path);
  DT_CHECK(pointer || !pointer.error().message.empty(), "a refusal has a reason");
  return 0;
}
