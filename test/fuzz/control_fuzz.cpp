/// Any bytes as a request on the control socket: refused, or read into fields.

#include <cstdint>
#include <string_view>

#include "core/base/result.h"
#include "supervisor/control/control_request.h"
#include "test/fuzz/target.h"

DT_FUZZ_TARGET(control)
(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(bytes), size);
  const auto ask = dt::supervisor::control_ask_from_json(in);
  if (!ask) return 0;
  DT_CHECK(!ask->host || ask->host->size() <= size, "no more text than there was");
  return 0;
}
