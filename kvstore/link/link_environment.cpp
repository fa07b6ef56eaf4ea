#include "kvstore/link/link_environment.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <boost/algorithm/hex.hpp>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

#include "core/base/number.h"
#include "io/flags.h"

namespace dt::kv {

namespace {

/// Reads variables and keeps the first error.
class Variables {
 public:
  std::string text(const char* name) {
    const char* value = std::getenv(name);
    if (!value || !*value) wrong(name, "is not set");
    return value ? value : "";
  }
  /// The 32 bytes of 64 hexadecimal digits.
  std::string secret(const char* name) {
    std::string bytes;
    try {
      bytes = boost::algorithm::unhex(text(name));
    } catch (const boost::algorithm::hex_decode_error&) {
      bytes.clear();
    }
    if (bytes.size() != 32) wrong(name, "is not 64 hexadecimal digits");
    return bytes;
  }
  template <class Number>
  void number(const char* name, Number& out, bool required) {
    const char* value = std::getenv(name);
    if (!value || !*value) {
      if (required) wrong(name, "is not set");
      return;
    }
    const auto read = parse_number<Number>(value);
    if (!read) return wrong(name, "is not a number in range");
    out = *read;
  }
  void seconds(const char* name, Duration& out) {
    double value = -1;
    number(name, value, false);
    if (value >= 0 && value < 1e9) out = from_seconds(value);
  }
  /// Those that dtlaunch has options of the same meaning for.
  void options(io::DataOptions& data) {
    for (const io::Flag& flag : io::data_flags(data).flags) {
      const char* value = flag.variable ? std::getenv(flag.variable) : nullptr;
      if (!value || !*value) continue;
      if (const auto good = io::read(flag, value); !good)
        wrong(flag.variable, fmt::format("is {}: {}", value, good.error().message));
    }
  }
  void wrong(const char* name, std::string_view what) {
    if (!error_)
      error_ = Error{ErrorKind::kInvalid,
                     fmt::format("{} {}: start this program with dtlaunch", name, what)};
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  std::optional<Error> error_;
};

/// The address of the interface with exactly this name; empty: it has none, or there is none.
std::string address_of(const ifaddrs* list, std::string_view name) {
  std::string found;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || name != entry->ifa_name) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      return std::string(::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text));
    }
    if (entry->ifa_addr->sa_family == AF_INET6 && found.empty()) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      if (!IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
        found = ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    }
  }
  return found;
}

}  // namespace

Result<std::string> interface_address(const std::string& name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return tl::unexpected(errno_error(errno, "list the network interfaces"));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::string found = address_of(list, name);
  for (const ifaddrs* entry = list; entry && found.empty(); entry = entry->ifa_next)
    if (std::string_view(entry->ifa_name).starts_with(name))
      found = address_of(list, entry->ifa_name);
  if (found.empty())
    return fail(ErrorKind::kInvalid,
                "no network interface {}, and none whose name begins so, has an address here "
                "(--interface, DMLC_INTERFACE)",
                name);
  return found;
}

Result<JobEnvironment> read_environment(Role role) {
  Variables variables;
  JobEnvironment env;
  env.agent.path = variables.text("DT_AGENT_SOCKET");
  env.agent.token = variables.text("DT_TOKEN");
  variables.seconds("DT_ORPHAN_TIMEOUT", env.agent.orphan_limit);
  env.secret = variables.secret("DT_SECRET");
  variables.seconds("DT_START_TIMEOUT", env.start_timeout);
  variables.seconds("DT_SERVER_DEAD_AFTER", env.server_dead_after);
  if (const char* verbose = std::getenv("PS_VERBOSE"))
    env.verbose = parse_number<std::uint32_t>(verbose).value_or(0);
  variables.options(env.data);
  if (env.data.data_auth == "frames") env.data_auth = DataAuth::kFrames;
  if (env.data.data_auth == "handshake") env.data_auth = DataAuth::kHandshake;
  if (role == Role::kServer) {
    variables.number("DT_SERVER_ID", env.id, true);
    env.server_index = env.id;
    variables.number("DT_SERVER_INDEX", env.server_index, false);
    variables.number("DT_SERVER_PORT", env.data.server_port, false);
    variables.number("DT_NUM_WORKERS", env.num_workers, false);
    variables.number("DT_MAX_WORKERS", env.max_workers, false);
    env.bind = variables.text("DT_BIND");
    variables.number("DT_NUM_SERVERS", env.num_servers, false);
    if (const char* folder = std::getenv("DT_CHECKPOINTS")) env.checkpoints = folder;
    if (const char* folder = std::getenv("DT_RESTORE")) env.restore = folder;
  } else {
    unsigned newcomer = 0;
    variables.number("DT_WORKER_ID", env.id, true);
    variables.number("DT_RANK", env.rank, true);
    variables.number("DT_NUM_WORKERS", env.num_workers, true);
    variables.number("DT_NUM_SERVERS", env.num_servers, true);
    variables.number("DT_NEWCOMER", newcomer, false);
    env.newcomer = newcomer != 0;
    if (env.data.transport == "tcp") env.transport = Transport::kTcp;
    if (env.data.transport == "shm") env.transport = Transport::kSharedMemory;
  }
  env.agent.process.role = role;
  env.agent.process.id = env.id;
  if (variables.error()) return tl::unexpected(*variables.error());
  return env;
}

}  // namespace dt::kv
