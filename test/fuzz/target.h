/// A fuzz target is a function that takes any bytes, and must not crash. With libFuzzer (DT_FUZZER)
/// each target is a separate program; otherwise one program, replay_main.cpp, has all targets and
/// runs their corpora.
///
///     DT_FUZZ_TARGET(hosts)
///     (const std::uint8_t* bytes, std::size_t size) { ...; return 0; }
#pragma once

#include <cstddef>
#include <cstdint>

namespace dt::test {

using FuzzFunction = int (*)(const std::uint8_t* bytes, std::size_t size);

/// Puts a target into the list of the replaying program. Static, one for each target.
struct FuzzTarget {
  FuzzTarget(const char* target, FuzzFunction function);
  const char* name;
  FuzzFunction run;
  const FuzzTarget* next;
};

}  // namespace dt::test

#ifdef DT_FUZZER
#define DT_FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput
#else
#define DT_FUZZ_TARGET(name)                                                 \
  static int fuzz_##name(const std::uint8_t* bytes, std::size_t size);       \
  static const dt::test::FuzzTarget fuzz_target_##name(#name, &fuzz_##name); \
  static int fuzz_##name
#endif
