/// The data check of a host: its success file and how its failure is told.
#pragma once

#include <string>
#include <string_view>

namespace dt::supervisor {

/// `<job_dir>/prepare_data_success_<address>`
[[nodiscard]] inline std::string prepared_file(const std::string& job_dir,
                                               const std::string& address) {
  return job_dir + "/prepare_data_success_" + address;
}

/// ": last words" for an error message: the last lines of a command's output on one line, at most
/// 300 bytes.
[[nodiscard]] inline std::string last_lines(std::string_view tail) {
  while (!tail.empty() && (tail.back() == '\n' || tail.back() == '\r')) tail.remove_suffix(1);
  constexpr std::size_t kMost = 300;
  if (tail.size() > kMost) tail.remove_prefix(tail.size() - kMost);
  std::string out = ": ";
  for (const char c : tail) out += c == '\n' ? std::string(" | ") : std::string(1, c);
  return tail.empty() ? std::string() : out;
}

}  // namespace dt::supervisor
