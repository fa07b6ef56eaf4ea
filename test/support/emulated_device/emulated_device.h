/// CUDA devices for tests: kvstore/compute/cuda/device.h and launch.h over ordinary memory, for
/// programs with the target property DT_EMULATED_DEVICE. Each process has its own devices. For
/// programs that are not tests themselves, the environment sets the number of devices
/// (DT_EMULATED_DEVICES; 1), the memory of each (DT_EMULATED_BYTES; unlimited), and that devices
/// reach all memory (DT_EMULATED_REACH=all), for who calls ordinary memory a device's.
///
/// Finds errors that a real device shows only sometimes:
/// - Work on a stream is done as late as is allowed: when a caller waits for the stream or an event
///   after it, at the second query of such an event, before memory is freed, or at flush(). A
///   caller that forgets to wait reads the old content.
/// - Device and pinned memory is poisoned (every byte is kPoison: floats are NaN) when it is
///   allocated and when it is freed.
/// - A launch with memory that no device reaches (ordinary memory which is not registered) breaks
///   the device, as CUDA does: every later call fails with the same message.
/// - A launch on a stream of a device other than the thread's current one is refused.
/// - Removing a registration of memory that is already unmapped ends the program.
/// - A callback runs on a thread of the emulation, soon; if it calls device.h the program is
///   ended.
/// - Foreign memory has its own address, which is unmapped once it is closed. Unlike CUDA's, it is
///   opened only in the process that exported it, since tests run workers and servers in one
///   process. Memory that is freed while it is open is poisoned for its users, and leaks() reports
///   it.
///
/// Launches run the host form of the operations. Any thread may call anything.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>

namespace dt::test::emulated {

constexpr unsigned char kPoison = 0xff;

/// Sets up `devices` working devices (0: none) with unlimited memory. Nothing may be alive.
void restart(int devices = 1);
/// From now on each device has `bytes`, those already allocated included; larger allocations fail
/// as CUDA's do.
void limit_device_memory(std::size_t bytes);
/// The same for pinned memory and registrations together.
void limit_pinned_memory(std::size_t bytes);
/// From now on opening foreign memory fails with this message (a literal); null: succeeds again.
void refuse_foreign(const char* error);
/// From now on every call fails with this message (a literal); null: succeeds again.
void break_devices(const char* error);
/// From now on that element of each matrix product is wrong by one; nullopt: correct again.
void spoil_products(std::optional<std::size_t> element);
[[nodiscard]] std::optional<std::size_t> wrong_element();
/// From now on each copy calls `call` with its destination, on the thread that requests the copy
/// and before it is on its stream; empty: no call.
void before_copies(std::function<void(const void* to)> call);
/// The devices on which the process has a context since restart(): as with CUDA 12, those that were
/// made current, and those that were it when a memory, stream or event was made.
[[nodiscard]] std::set<int> contexts();
/// Does all work. Not while a callback waits for the caller.
void flush();

/// Resources that have not been released.
struct Alive {
  std::size_t device_memories = 0;
  std::size_t device_bytes = 0;
  std::size_t pinned_memories = 0;
  std::size_t registrations = 0;
  std::size_t foreign_memories = 0;
  std::size_t streams = 0;
  std::size_t events = 0;
};
[[nodiscard]] Alive alive();
/// Describes what is alive and what was freed while it was open; empty if nothing.
[[nodiscard]] std::string leaks();

/// Counts since restart().
struct Done {
  std::size_t copies = 0;
  std::size_t launches = 0;
  std::size_t callbacks = 0;
  std::size_t allocations = 0;    ///< Successful ones, of device and pinned memory.
  std::size_t waits_for_all = 0;  ///< Frees of memory, which wait for the devices.
  std::size_t opened = 0;         ///< Foreign memories.
  std::size_t freed_while_open = 0;
};
[[nodiscard]] Done done();

}  // namespace dt::test::emulated
