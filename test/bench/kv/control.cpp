#include "test/bench/kv/control.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <iterator>
#include <new>

#include "test/bench/kv/failure.h"

namespace dt::bench {

namespace {

using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == sizeof(std::uint32_t));

constexpr std::uint64_t kMagic = 0x3368636e65627464;  // "dtbench3"
constexpr auto kLook = std::chrono::milliseconds(200);

void wait_while(Word& word, std::uint32_t value, const timespec* limit = nullptr) {
  (void)::syscall(SYS_futex, &word, FUTEX_WAIT, value, limit, nullptr, 0);
}
void wake_all(Word& word) {
  (void)::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

struct Control::Head {
  std::uint64_t magic = kMagic;
  std::uint32_t workers = 0;
  std::uint32_t tensors = 0;

  Word turn{0};  ///< Number of orders given.
  Command command;
  Word ready{0};
  Word done{0};
  Word left{0};
  Word servers_ready{0};
  std::uint16_t ports[kMostServers] = {};

  Word meeting{0};  ///< Number of meetings that took place.
  Word met{0};      ///< Number of workers that have come to the present one.

  std::atomic<int> worker_pids[kMostWorkers] = {};
  std::atomic<int> server_pids[kMostServers] = {};
  double elapsed[kMostWorkers] = {};
  std::atomic<bool> has_told[kMostWorkers] = {};
  std::atomic<double> staged_mib[kMostWorkers] = {};
  std::atomic<double> pinned_mib[kMostWorkers] = {};
  std::atomic<double> device_mib[kMostWorkers] = {};
  std::atomic<std::uint64_t> read_in_place{0};
  std::atomic<std::uint64_t> bad{0};
  // Then: tensors x uint64, workers x kMostOperations x double.
};

namespace {

std::size_t bytes_for(std::size_t head, std::uint64_t workers, std::uint64_t tensors) {
  return head + tensors * sizeof(std::uint64_t) + workers * kMostOperations * sizeof(double);
}

}  // namespace

void Control::Unmap::operator()(Head* head) const { ::munmap(head, bytes); }

void Control::map(std::size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED) throw Failure(errno_error(errno, "map the control memory"));
  head_ = {static_cast<Head*>(at), Unmap{bytes}};
}

Control::Control(std::uint32_t workers, const std::vector<std::uint64_t>& elements)
    : fd_(::memfd_create("dtbench", MFD_CLOEXEC)) {
  const std::size_t bytes = bytes_for(sizeof(Head), workers, elements.size());
  if (!fd_ || ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0)
    throw Failure(errno_error(errno, "make the control memory"));
  map(bytes);
  new (head_.get()) Head;
  head_->workers = workers;
  head_->tensors = static_cast<std::uint32_t>(elements.size());
  std::ranges::copy(elements, reinterpret_cast<std::uint64_t*>(head_.get() + 1));
}

Control::Control(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
  struct stat about {};
  if (!fd_ || ::fstat(fd_.get(), &about) != 0) throw Failure(errno_error(errno, "open " + path));
  const auto bytes = static_cast<std::size_t>(about.st_size);
  if (bytes < sizeof(Head)) throw Failure("{} is not dtbench's", path);
  map(bytes);
  if (head_->magic != kMagic || bytes != bytes_for(sizeof(Head), head_->workers, head_->tensors))
    throw Failure("{} is not of this version of dtbench", path);
}

std::string Control::path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), fd_.get()); }

std::uint32_t Control::workers() const { return head_->workers; }

std::span<const std::uint64_t> Control::elements() const {
  return {reinterpret_cast<const std::uint64_t*>(head_.get() + 1), head_->tensors};
}

std::span<double> Control::times(std::uint32_t rank) const {
  auto* first = reinterpret_cast<std::uint64_t*>(head_.get() + 1) + head_->tensors;
  return {reinterpret_cast<double*>(first) + std::size_t{rank} * kMostOperations, kMostOperations};
}

// ---------------------------------------------------------------- coordinator

void Control::await(Word& count, Duration limit, const Watch& watch) {
  const std::uint32_t wanted = head_->workers;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const timespec look{0, std::chrono::nanoseconds(kLook).count()};
  for (std::uint32_t have = count; have < wanted; have = count) {
    watch();
    if (std::chrono::steady_clock::now() > deadline)
      throw Failure("{} of {} workers gave no sign for {:.0f} s", wanted - have, wanted,
                    seconds(limit));
    wait_while(count, have, &look);
  }
}

void Control::await_ready(Duration limit, const Watch& watch) { await(head_->ready, limit, watch); }

void Control::order(const Command& command) {
  head_->command = command;
  head_->done = 0;
  ++head_->turn;
  wake_all(head_->turn);
}

void Control::await_done(Duration limit, const Watch& watch) { await(head_->done, limit, watch); }

std::vector<int> Control::pids() const {
  std::vector<int> all;
  for (const auto& pid : head_->worker_pids)
    if (pid) all.push_back(pid);
  std::ranges::copy(server_pids(), std::back_inserter(all));
  return all;
}

std::vector<int> Control::server_pids() const {
  std::vector<int> all;
  for (const auto& pid : head_->server_pids)
    if (pid) all.push_back(pid);
  return all;
}

double Control::elapsed(std::uint32_t rank) const { return head_->elapsed[rank]; }

std::uint64_t Control::bad() const { return head_->bad; }

std::optional<KeptMemory> Control::kept() const {
  std::optional<KeptMemory> most;
  for (std::uint32_t w = 0; w < head_->workers; ++w) {
    if (!head_->has_told[w]) continue;
    if (!most) most.emplace();
    most->staged_mib = std::max(most->staged_mib, head_->staged_mib[w].load());
    most->pinned_mib = std::max(most->pinned_mib, head_->pinned_mib[w].load());
    most->device_mib = std::max(most->device_mib, head_->device_mib[w].load());
  }
  return most;
}

std::uint64_t Control::read_in_place() const { return head_->read_in_place; }

// ---------------------------------------------------------------- workers and servers

void Control::ready(std::uint32_t rank) {
  head_->worker_pids[rank] = ::getpid();
  if (++head_->ready == head_->workers) wake_all(head_->ready);
}

Command Control::next() {
  while (head_->turn == seen_) wait_while(head_->turn, seen_);
  ++seen_;
  return head_->command;
}

void Control::meet() {
  const std::uint32_t meeting = head_->meeting;
  if (++head_->met == head_->workers) {
    head_->met = 0;
    ++head_->meeting;
    wake_all(head_->meeting);
    return;
  }
  while (head_->meeting == meeting) wait_while(head_->meeting, meeting);
}

void Control::done(std::uint32_t rank, double elapsed, std::uint64_t bad) {
  head_->elapsed[rank] = elapsed;
  head_->bad += bad;
  if (++head_->done == head_->workers) wake_all(head_->done);
}

void Control::keeps(std::uint32_t rank, const KeptMemory& memory) {
  head_->staged_mib[rank] = memory.staged_mib;
  head_->pinned_mib[rank] = memory.pinned_mib;
  head_->device_mib[rank] = memory.device_mib;
  head_->has_told[rank] = true;
}

void Control::leave() {
  ++head_->left;
  wake_all(head_->left);
}

void Control::server_ready(std::uint32_t server, std::uint16_t port) {
  head_->server_pids[server] = ::getpid();
  head_->ports[server] = port;
  ++head_->servers_ready;
  wake_all(head_->servers_ready);
}

std::vector<std::uint16_t> Control::await_ports(std::uint32_t servers) {
  for (std::uint32_t have = head_->servers_ready; have < servers; have = head_->servers_ready)
    wait_while(head_->servers_ready, have);
  return {head_->ports, head_->ports + servers};
}

void Control::has_read_in_place(std::uint64_t contributions) {
  head_->read_in_place += contributions;
}

void Control::await_leavers() {
  for (std::uint32_t left = head_->left; left < head_->workers; left = head_->left)
    wait_while(head_->left, left);
}

}  // namespace dt::bench
