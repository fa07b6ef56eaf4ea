/// The job of a folder, and what is asked of its supervisor.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "io/asio.h"
#include "io/job/control_client.h"
#include "io/job/job_pointer.h"
#include "supervisor/dtctl/command.h"

namespace dt::supervisor::ctl {

struct Connected {
  io::JobPointer job;
  std::unique_ptr<io::ControlClient> client;
};

/// To the supervisor of the folder's job, or of `job`, which was found there.
io::awaitable<Result<Connected>> connect(Arguments args);
io::awaitable<Result<Connected>> connect(Arguments args, io::JobPointer job);

inline constexpr Duration kReplyLimit = std::chrono::seconds(15);
/// Of a request that reads and writes host_worker on the volume.
inline constexpr Duration kEditLimit = std::chrono::seconds(30);

/// The reply to a request; a refusal, kDenied, has the supervisor's own words. kTimeout, with the
/// remedy, if none comes within `limit`: no request of these waits for an event of the job.
io::awaitable<Result<std::string>> ask(const Connected& to, std::string op,
                                       nlohmann::json request = nlohmann::json::object(),
                                       Duration limit = kReplyLimit);

/// The reply, or Failed.
std::string need_reply(Result<std::string> reply);

/// Why no supervisor answers on a job's control socket, and the remedy.
Error no_answer(const Arguments& args, const io::JobPointer& job);

}  // namespace dt::supervisor::ctl
