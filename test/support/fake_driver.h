/// A copy of the fake NVML (test/support/fake_nvml) in its own folder, with its script.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace dt::test {

class FakeDriver {
 public:
  /// `script`: see fake_nvml.cpp.
  explicit FakeDriver(const std::string& script = {}, const char* program = DT_FAKE_NVML) {
    char folder[] = "/tmp/dtnvml.XXXXXX";
    folder_ = ::mkdtemp(folder);
    std::filesystem::copy_file(program, library());
    says(script);
  }
  ~FakeDriver() { std::filesystem::remove_all(folder_); }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  [[nodiscard]] std::string library() const { return folder_ + "/libnvidia-ml.so.1"; }
  /// Replaces the script atomically; it applies from the next call.
  void says(const std::string& script) const {
    const std::string path = library() + ".script";
    std::ofstream(path + ".new") << script;
    std::filesystem::rename(path + ".new", path);
  }

 private:
  std::string folder_;
};

}  // namespace dt::test
