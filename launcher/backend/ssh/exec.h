/// Commands on a host, over the sessions of a pool.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/files/hosts.h"
#include "io/asio.h"
#include "launcher/backend/ssh/pool.h"
#include "launcher/backend/ssh/ssh.h"
#include "launcher/backend/ssh/stream.h"

namespace dt::launcher {

/// See SshBackend::run. `input` must live until then.
io::awaitable<Result<CommandResult>> run_command(Pool& pool, Host host, std::string shell_command,
                                                 std::string_view input, Duration deadline);

/// See SshBackend::start.
io::awaitable<Result<std::unique_ptr<CommandStream>>> start_command(Pool& pool, Host host,
                                                                    std::string shell_command);

/// A stream to `program`, which has started. Its failure is an error of read(), with the last of
/// its stderr.
[[nodiscard]] std::unique_ptr<CommandStream> program_stream(std::unique_ptr<SshStream> stream,
                                                            const Host& host, std::string program);

/// The last `most` bytes of a program's output, on one line.
[[nodiscard]] std::string on_one_line(std::string_view text, std::size_t most = 400);

}  // namespace dt::launcher
