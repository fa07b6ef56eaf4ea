/// Carries bytes between the bridge's stdin and stdout and the agent's socket. Blocking: a thread
/// for each direction.
#pragma once

#include <functional>
#include <string_view>

namespace dt::launcher {

/// Gives `take` each piece that comes by stdin, until the end of that or until it returns false.
/// `lines`: see below.
void each_piece(bool lines, const std::function<bool(std::string_view)>& take);

/// Until either side ends. `lines`: what comes in and goes out is framed (core/launch/lines.h).
void carry_in(int agent, bool lines);
void carry_out(int agent, bool lines);

/// Writes `bytes` to stdout.
void write_out(std::string_view bytes, bool lines);
/// After the last of them.
void write_end(bool lines);

}  // namespace dt::launcher
