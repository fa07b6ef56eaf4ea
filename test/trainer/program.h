/// Runs a program to its end.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "test/support/catch.h"

namespace dt::test {

struct Ended {
  int status = 0;  ///< Status from waitpid.
  std::string output;
  [[nodiscard]] int exit_code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
  [[nodiscard]] bool says(const std::string& text) const {
    return output.find(text) != std::string::npos;
  }
};

/// `command` as for a shell; stdout and stderr together.
inline Ended run_program(const std::string& command) {
  std::FILE* pipe = popen(("exec " + command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  Ended ended;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) ended.output.push_back(static_cast<char>(c));
  ended.status = pclose(pipe);
  return ended;
}

}  // namespace dt::test
