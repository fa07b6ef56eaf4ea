/// Any bytes as the JSON files of a job: its spec, its folder's pointer file. Refused with a
/// reason, or understood; a spec, written again, is the same one.

#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "io/job_spec.h"
#include "supervisor/job_pointer.h"

using namespace dt;

namespace {

/// A job folder of this process, gone at its end.
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const JobFolder kFolder;
  const std::string in(bytes, bytes + size);
  if (const auto spec = io::spec_from_json(in)) {
    const std::string text = to_json(*spec);
    const auto again = io::spec_from_json(text);
    DT_CHECK(again && to_json(*again) == text, "a spec that changes when it is written again");
  }
  std::ofstream(io::pointer_file(kFolder.path), std::ios::binary | std::ios::trunc) << in;
  const auto pointer = supervisor::read_job_pointer(kFolder.path);
  DT_CHECK(pointer || !pointer.error().message.empty(), "a refusal has a reason");
  return 0;
}
