#include "kvstore/link/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "kvstore/link/handshake.h"

namespace dt::kv {

namespace {

constexpr std::size_t kPage = 4096;
/// On 2 MB boundaries the kernel can use large pages, where it is allowed to.
constexpr std::size_t kLargePage = std::size_t{2} << 20;
constexpr const char* kName = "dtkv";

/// Without a descriptor (-1): fresh memory.
Result<std::byte*> map(int fd, std::size_t size) {
  const int kind = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, kind, fd, 0);
  if (at == MAP_FAILED) return tl::unexpected(errno_error(errno, "map shared memory"));
  (void)::madvise(at, size, MADV_HUGEPAGE);
  return static_cast<std::byte*>(at);
}

std::size_t round_up(std::size_t size) {
  const std::size_t unit = size >= kLargePage ? kLargePage : kPage;
  return (size + unit - 1) / unit * unit;
}

}  // namespace

SharedMemory::SharedMemory(io::Fd fd, std::byte* begin, std::size_t size)
    : fd_(std::move(fd)), begin_(begin), size_(size) {
  if (fd_) closed_in_child_.emplace(fd_.get());
}

SharedMemory::~SharedMemory() {
  pinned_ = cuda::PinnedRegistration();
  ::munmap(begin_, size_ + kPage);
}

void SharedMemory::pin() { static_cast<void>(pinned_.add(begin_, size_)); }

void SharedMemory::discard(std::uint64_t offset, std::uint64_t size) {
  const std::uint64_t begin = round_up(offset);
  const std::uint64_t end = (offset + size) / kPage * kPage;
  // Where the system cannot, the pages stay.
  if (begin < end) static_cast<void>(::madvise(begin_ + begin, end - begin, MADV_REMOVE));
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::create(std::size_t size, bool reserve) {
  const std::size_t usable = round_up(std::max<std::size_t>(size, 1));
  const std::size_t whole = usable + kPage;
  io::Fd fd(::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return tl::unexpected(errno_error(errno, "create shared memory"));
  const auto length = static_cast<off_t>(whole);
  if (::ftruncate(fd.get(), length) != 0)
    return tl::unexpected(errno_error(errno, fmt::format("{} bytes of shared memory", whole)));
  if (const int error = reserve ? ::posix_fallocate(fd.get(), 0, length) : 0; error != 0)
    return tl::unexpected(errno_error(error, fmt::format("{} bytes of shared memory", whole)));
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return tl::unexpected(errno_error(errno, "seal shared memory"));
  auto at = map(fd.get(), whole);
  if (!at) return tl::unexpected(at.error());
  const std::string token = fresh_nonce();
  std::memcpy(*at + usable, token.data(), token.size());
  return std::shared_ptr<SharedMemory>(new SharedMemory(std::move(fd), *at, usable));
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::anonymous(std::size_t size) {
  const std::size_t usable = round_up(std::max<std::size_t>(size, 1));
  auto at = map(-1, usable + kPage);
  if (!at) return tl::unexpected(at.error());
  return std::shared_ptr<SharedMemory>(new SharedMemory(io::Fd(), *at, usable));
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::open(const data::ShareMemory& told) {
  const std::string path = fmt::format("/proc/{}/fd/{}", told.pid, told.fd);
  // In another pid namespace the descriptor may be any file: check it before opening it.
  std::array<char, 64> target{};
  const auto length = ::readlink(path.c_str(), target.data(), target.size() - 1);
  if (length < 0) return tl::unexpected(errno_error(errno, path));
  if (std::string_view(target.data()) != fmt::format("/memfd:{} (deleted)", kName))
    return fail(ErrorKind::kDenied, "{} is not the shared memory of a worker", path);
  io::Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return tl::unexpected(errno_error(errno, path));
  // A sealed file cannot shrink during reads and writes, which would end this process.
  struct stat facts {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  const bool good = ::fstat(fd.get(), &facts) == 0 && seals >= 0 && (seals & F_SEAL_SHRINK) &&
                    told.size > 0 && told.size <= (std::uint64_t{1} << 46) &&
                    static_cast<std::uint64_t>(facts.st_size) == told.size + kPage;
  if (!good) return fail(ErrorKind::kDenied, "{} is not of {} bytes and sealed", path, told.size);
  auto at = map(fd.get(), told.size + kPage);
  if (!at) return tl::unexpected(at.error());
  // A mapped file needs no descriptor.
  std::shared_ptr<SharedMemory> memory(new SharedMemory(io::Fd(), *at, told.size));
  const std::string_view token(reinterpret_cast<const char*>(*at + told.size), data::kNonceBytes);
  if (token != told.token) return fail(ErrorKind::kDenied, "{} is another memory", path);
  return memory;
}

bool SharedMemory::holds(const void* data, std::size_t size) const {
  const auto* from = static_cast<const std::byte*>(data);
  const std::less_equal<const std::byte*> before;
  return before(begin_, from) && before(from, begin_ + size_) &&
         size <= static_cast<std::size_t>(begin_ + size_ - from);
}

data::ShareMemory SharedMemory::describe(std::uint32_t number) const {
  return {.number = number,
          .pid = static_cast<std::uint32_t>(::getpid()),
          .fd = static_cast<std::uint32_t>(fd_.get()),
          .size = size_,
          .token = {reinterpret_cast<const char*>(begin_ + size_), data::kNonceBytes}};
}

}  // namespace dt::kv
