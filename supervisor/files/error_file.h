/// The error file of a worker: what torch's @record, or another program, wrote to
/// $TORCHELASTIC_ERROR_FILE; without one, its agent's text.
#pragma once

#include <string>
#include <string_view>

namespace dt::supervisor {

/// Its message on one line, of a bounded length: "ValueError: no such batch". Empty: it has none.
[[nodiscard]] std::string error_message(std::string_view json);

}  // namespace dt::supervisor
