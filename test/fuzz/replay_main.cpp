/// Runs a fuzz target over every file of the given folders: replays the committed corpus as an
/// ordinary test, without libFuzzer.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "test/fuzz/target.h"

namespace dt::test {
namespace {

const FuzzTarget*& first_target() {
  static const FuzzTarget* first = nullptr;
  return first;
}

const FuzzTarget* find_target(const std::string& name) {
  const FuzzTarget* target = first_target();
  while (target != nullptr && target->name != name) target = target->next;
  return target;
}

}  // namespace

FuzzTarget::FuzzTarget(const char* target, FuzzFunction function)
    : name(target), run(function), next(first_target()) {
  first_target() = this;
}

}  // namespace dt::test

int main(int argc, char** argv) {
  const auto* target = argc > 2 ? dt::test::find_target(argv[1]) : nullptr;
  if (target == nullptr) {
    std::fprintf(stderr, "usage: %s TARGET FOLDER...\n", argv[0]);
    return 2;
  }
  int inputs = 0;
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(file)), {});
      target->run(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++inputs;
    }
  }
  std::printf("%d inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
