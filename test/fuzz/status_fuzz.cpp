/// Any bytes as the status of a job. Refused, or understood, and then the same one when it is
/// written again; each text of it is made.

#include <cstdint>
#include <string>

#include "core/files/hosts.h"
#include "io/job/status_fields.h"
#include "supervisor/dtctl/metrics_text.h"
#include "supervisor/dtctl/status_text.h"
#include "supervisor/dtctl/why_text.h"
#include "test/fuzz/target.h"

using namespace dt;

DT_FUZZ_TARGET(status)
(const std::uint8_t* bytes, std::size_t size) {
  const std::string in(bytes, bytes + size);
  const auto status = io::status_from(in);
  if (!status) return 0;
  const std::string written = to_json(*status);
  const auto again = io::status_from(written);
  DT_CHECK(again && to_json(*again) == written, "a status that changes when it is written again");
  DT_CHECK(supervisor::status_text(in) && supervisor::status_text(in, true), "a table");
  DT_CHECK(supervisor::metrics_text(in), "metrics");
  (void)supervisor::why_text(in, {"", "localhost", 0});
  return 0;
}
