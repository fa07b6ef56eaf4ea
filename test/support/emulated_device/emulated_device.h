/// CUDA devices for tests: kvstore/compute/cuda/device.h and launch.h over ordinary memory, for
/// programs with the target property DT_EMULATED_DEVICE. One machine's worth in each process; for
/// programs that are not tests themselves the environment says how many devices
/// (DT_EMULATED_DEVICES; 1) of how much memory (DT_EMULATED_BYTES; any).
///
/// Meant to find what a real device shows only now and then:
/// - Work put on a stream is done as late as is allowed: when somebody waits for the stream or an
///   event after it, at the second query of such an event, before memory is freed, or at flush().
///   Who forgets to wait reads what was there before.
/// - Device and pinned memory is poisoned (every byte is kPoison: floats are NaN) when it is
///   allocated and when it is freed.
/// - A launch that is given memory that no device reaches (ordinary memory which is not registered)
///   breaks the device, as CUDA does: every later call fails with the same words.
/// - A launch on a stream of another device than the thread's present one is refused.
/// - A registration of memory that is unmapped already ends the program when it is removed.
/// - A call_back runs on a thread of the emulation, soon; if it calls device.h the program is
/// ended.
/// - Foreign memory has an address of its own, which is nobody's once it is closed. Other than
/// CUDA's it is opened in the process that exported it, and nowhere else, since tests have workers
/// and servers in one. Memory that is freed while it is open is poisoned for those who have it, and
/// leaks() tells of it.
///
/// Launches run the host form of the operations. Any thread may call anything.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace dt::test::emulated {

constexpr unsigned char kPoison = 0xff;

/// `devices` of them (0: none), with as much memory as one likes, unbroken. Nothing may be alive.
void restart(int devices = 1);
/// From now on each device has so many bytes, counted with those that are allocated there; what
/// goes beyond fails as CUDA does.
void limit_device_memory(std::size_t bytes);
/// The same for pinned memory and registrations together.
void limit_pinned_memory(std::size_t bytes);
/// From now on foreign memory is not opened, with these words, which live for ever; null: no more.
void refuse_foreign(const char* error);
/// From now on every call fails with these words, which live for ever; null: no more.
void break_devices(const char* error);
/// From now on that element of each matrix product is wrong by one; none: no more.
void spoil_products(std::optional<std::size_t> element);
[[nodiscard]] std::optional<std::size_t> wrong_element();
/// From now on each copy calls it with where the copy goes, on the thread that asks for the copy
/// and before it is on its stream; none: no more.
void before_copies(std::function<void(const void* to)> call);
/// All work is done. Not while a call_back waits for the caller.
void flush();

/// What has not been given back.
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
/// Empty: nothing is alive, and nothing was freed that was open. Else what is, in words.
[[nodiscard]] std::string leaks();

/// Since restart().
struct Done {
  std::size_t copies = 0;
  std::size_t launches = 0;
  std::size_t call_backs = 0;
  std::size_t allocations = 0;    ///< Of device and of pinned memory, successful.
  std::size_t waits_for_all = 0;  ///< Memory was freed, which waits for the devices.
  std::size_t opened = 0;         ///< Foreign memories.
  std::size_t freed_while_open = 0;
};
[[nodiscard]] Done done();

}  // namespace dt::test::emulated
