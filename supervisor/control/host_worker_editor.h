/// Edits host_worker for `dtctl add` and `dtctl remove`: the file stays the truth, and its other
/// lines stay as they are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/files/hosts.h"
#include "io/semaphore.h"
#include "supervisor/context/supervisor_context.h"

namespace dt::supervisor {

/// One thread. Everything given outlives it.
class HostWorkerEditor {
 public:
  explicit HostWorkerEditor(SupervisorContext& context) : context_(context) {}

  enum class Edit { kAdd, kAddUnlessThere, kRemove };
  /// `host` may name several in the hosts file's grammar; `slots` where a name has none. One edit
  /// after the other.
  io::awaitable<Result<void>> edit(Edit edit, std::string host, std::uint32_t slots);
  /// The lines of `from` become lines of `to`, as many as it lacks; it has `least` at least.
  io::awaitable<Result<void>> replace(Host from, Host to, std::uint32_t least);

 private:
  io::awaitable<Result<void>> write(std::string text);
  /// The file, which has to name hosts.
  io::awaitable<Result<std::string>> read();
  [[nodiscard]] Result<void> add(std::string& text, const std::vector<HostLine>& lines,
                                 std::uint32_t slots, const std::string& asked);
  [[nodiscard]] Result<void> remove(std::string& text, const std::vector<HostLine>& lines) const;

  SupervisorContext& context_;
  std::shared_ptr<io::Semaphore> turn_ = std::make_shared<io::Semaphore>(context_.executor, 1);
};

}  // namespace dt::supervisor
