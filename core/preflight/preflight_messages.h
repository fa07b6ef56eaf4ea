/// What dtlaunch --check and `dtagent --check` on a host say to each other: frames of
/// core/base/wire over the stream of a backend. The host begins with AgentState. Each question has
/// an id of its own, which its answer repeats; answers come in any order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/protocol/control_messages.h"

namespace dt::preflight {

/// The host's wall clock.
struct ClockSaid {
  static constexpr std::uint16_t kType = 101;
  std::uint32_t id = 0;
  std::int64_t wall_ns = 0;  ///< Since 1970.
};
struct AskClock {
  static constexpr std::uint16_t kType = 100;
  using Answer = ClockSaid;
  std::uint32_t id = 0;
};

/// Where a host lacks the Python environment that is activated on the master.
inline constexpr const char* kActivatedRemedy =
    "put the environment on a shared volume, or write the path, or --env PATH";

/// A file as one host sees it.
struct FileFacts {
  std::string name;    ///< As it was asked for.
  std::string sha256;  ///< 64 hex digits; empty: it cannot be read, `why` says why.
  std::string why;
  friend bool operator==(const FileFacts&, const FileFacts&) = default;
};

/// The command on one host.
struct CommandFacts {
  std::string path;     ///< What its first word is there; empty: nothing, `why` says why.
  std::string version;  ///< Of a known interpreter; empty: not asked.
  std::string sha256;   ///< Of the file at `path`; empty: sha256sum failed there.
  std::string why;
  std::vector<FileFacts> files;
  friend bool operator==(const CommandFacts&, const CommandFacts&) = default;
};
struct CommandSaid {
  static constexpr std::uint16_t kType = 103;
  std::uint32_t id = 0;
  CommandFacts facts;
};
struct AskCommand {
  static constexpr std::uint16_t kType = 102;
  using Answer = CommandSaid;
  std::uint32_t id = 0;
  std::string word;                ///< The command's first; empty: files only.
  std::string cwd;                 ///< Where the job starts it.
  std::string path;                ///< Its PATH; empty: that of the host.
  std::string first;               ///< A folder before those of PATH, or empty.
  std::vector<std::string> files;  ///< Further ones; relative ones are in `cwd`.
};

/// How the job folder looks from one host.
enum class VolumeState : std::uint8_t {
  kGood,
  kMissing,   ///< There is no such folder.
  kOther,     ///< There is one, and what the master wrote is not in it.
  kReadOnly,  ///< The host may read in it only.
  kDenied,    ///< The host's user may not write in it.
  kFailed,    ///< Anything else; `why` has the system's words.
};
struct VolumeFacts {
  VolumeState state = VolumeState::kGood;
  std::string why;
  std::string mount;           ///< What is mounted there: "nfs1:/export, nfs4".
  std::uint32_t read_us = 0;   ///< Until the master's word was seen.
  std::uint32_t write_us = 0;  ///< For the host's own word, on disk.
};
struct VolumeSaid {
  static constexpr std::uint16_t kType = 105;
  std::uint32_t id = 0;
  VolumeFacts facts;
};
struct AskVolume {
  static constexpr std::uint16_t kType = 104;
  using Answer = VolumeSaid;
  std::uint32_t id = 0;
  std::string folder;    ///< The job folder.
  std::string probe;     ///< The folder in it that the master has made for this check.
  std::string word;      ///< Content of `probe`/master.
  std::string own;       ///< Name of the file that the host makes in `probe`,
  std::string own_word;  ///< and its content.
};

/// What a host offers to processes. 0: not known, or without a limit.
struct MachineFacts {
  std::uint32_t cores = 0;
  std::uint64_t memory = 0;        ///< Bytes, all of it.
  std::uint64_t memory_free = 0;   ///< Bytes that can be had, within the cgroup's limit.
  std::uint64_t shm_free = 0;      ///< Bytes in /dev/shm.
  std::uint64_t runtime_free = 0;  ///< Bytes in the folder of the agent's sockets.
  std::string runtime_folder;
  std::uint64_t open_files = 0;  ///< Hard limit.
  std::uint64_t locked_memory = 0;
  std::uint64_t processes_left = 0;  ///< Within the cgroup's limit.
};
struct MachineSaid {
  static constexpr std::uint16_t kType = 107;
  std::uint32_t id = 0;
  MachineFacts facts;
};
struct AskMachine {
  static constexpr std::uint16_t kType = 106;
  using Answer = MachineSaid;
  std::uint32_t id = 0;
};

struct GpuFacts {
  std::vector<std::string> names;     ///< A GPU each, in the driver's order.
  std::string driver;                 ///< Its version.
  std::vector<std::string> troubles;  ///< A sentence each: the driver's, then dtgpucheck's.
  friend bool operator==(const GpuFacts&, const GpuFacts&) = default;
};
struct GpusSaid {
  static constexpr std::uint16_t kType = 109;
  std::uint32_t id = 0;
  GpuFacts facts;
};
struct AskGpus {
  static constexpr std::uint16_t kType = 108;
  using Answer = GpusSaid;
  std::uint32_t id = 0;
};

/// Where a host listens.
struct Listening {
  static constexpr std::uint16_t kType = 111;
  std::uint32_t id = 0;
  std::string address;
  std::vector<std::uint16_t> ports;
  std::string why;  ///< Not empty: it does not listen.
};
/// Listens at these ports until the stream ends. Who connects gets `word`.
struct AskListen {
  static constexpr std::uint16_t kType = 110;
  using Answer = Listening;
  std::uint32_t id = 0;
  std::string interface;             ///< The address of this one, or of one whose name begins so;
  std::string address;               ///< without: this address.
  std::vector<std::uint16_t> ports;  ///< 0: any free one.
  std::string word;
};

struct Place {
  std::string address;
  std::uint16_t port = 0;
};
struct Dialled {
  static constexpr std::uint16_t kType = 113;
  std::uint32_t id = 0;
  std::vector<std::string> why_not;  ///< For each place; empty: it was reached.
};
/// Connects to all of these places at once, and reads the word that is said there.
struct AskDial {
  static constexpr std::uint16_t kType = 112;
  using Answer = Dialled;
  std::uint32_t id = 0;
  std::vector<Place> places;
  std::string word;  ///< Empty: that the connection is made is enough.
  std::uint32_t limit_ms = 0;
};

struct Measured {
  static constexpr std::uint16_t kType = 115;
  std::uint32_t id = 0;
  std::string why;
  double latency_us = 0;        ///< Median of a round trip of 64 bytes.
  double bytes_per_second = 0;  ///< As they arrived.
};
/// Measures the way from this host to a place where another one listens.
struct AskMeasure {
  static constexpr std::uint16_t kType = 114;
  using Answer = Measured;
  std::uint32_t id = 0;
  Place place;
  std::string word;
  std::uint64_t bytes = 0;     ///< At most so many are sent,
  std::uint32_t limit_ms = 0;  ///< and for so long.
};

}  // namespace dt::preflight
