/// Compares our declarations of NCCL with its own header; compiled if that is found.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "kvstore/compute/cuda/nccl.h"

namespace dt::kv::cuda {
namespace {

template <NcclType ours, ncclDataType_t theirs>
constexpr bool kSame = static_cast<int>(ours) == static_cast<int>(theirs);
static_assert(kSame<NcclType::kInt64, ncclInt64> && kSame<NcclType::kFloat16, ncclFloat16> &&
              kSame<NcclType::kFloat32, ncclFloat32> && kSame<NcclType::kFloat64, ncclFloat64> &&
              kSame<NcclType::kBFloat16, ncclBfloat16>);
static_assert(kNcclSum == static_cast<int>(ncclSum));
static_assert(kNcclInProgress == static_cast<int>(ncclInProgress));
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int));
static_assert(std::is_same_v<Comm, ncclComm_t> && std::is_same_v<Stream, cudaStream_t>);

// Our config is the beginning of NCCL's, with a version that lets NCCL set the later members.
static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(NcclConfig().version == NCCL_VERSION(2, 14, 0));

/// The same arguments, with NCCL's structs and enums replaced by ours of the same size.
template <class Theirs>
struct Plain {
  using type = std::conditional_t<std::is_enum_v<Theirs>, int, Theirs>;
};
template <>
struct Plain<ncclUniqueId> {
  using type = NcclUniqueId;
};
template <>
struct Plain<ncclUniqueId*> {
  using type = NcclUniqueId*;
};
template <>
struct Plain<ncclConfig_t*> {
  using type = NcclConfig*;
};
template <>
struct Plain<ncclResult_t*> {
  using type = int*;
};
template <class Result, class... Args>
auto plain(Result (*)(Args...)) -> typename Plain<Result>::type (*)(typename Plain<Args>::type...);

#define DT_SAME(name) \
  static_assert(std::is_same_v<decltype(NcclFunctions::name), decltype(plain(nccl##name))>)
DT_SAME(GetUniqueId);
DT_SAME(CommInitRankConfig);
DT_SAME(CommFinalize);
DT_SAME(CommDestroy);
DT_SAME(CommAbort);
DT_SAME(CommGetAsyncError);
DT_SAME(GetErrorString);
DT_SAME(GetLastError);
DT_SAME(GroupStart);
DT_SAME(GroupEnd);
DT_SAME(Reduce);
DT_SAME(Broadcast);
DT_SAME(ReduceScatter);
DT_SAME(AllGather);
#undef DT_SAME

}  // namespace
}  // namespace dt::kv::cuda
