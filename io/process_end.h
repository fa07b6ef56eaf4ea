/// Waiting for the end of a process, whoever's child it is.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>

#include "core/base/result.h"
#include "io/awaitable.h"
#include "io/subprocess.h"

namespace dt::io {

/// Waits until the process of `pidfd` has ended (it is not reaped); false: the wait was cancelled.
/// Asio's wait alone may complete while the process lives: an event of a descriptor that was
/// closed in the same turn of the loop goes to the next one registered.
awaitable<bool> process_ended(boost::asio::posix::stream_descriptor& pidfd);

/// Waits beside the loop until the child has ended, and reaps it. kClosed: the wait was cancelled.
awaitable<Result<ExitStatus>> end_of(Subprocess& child);

}  // namespace dt::io
