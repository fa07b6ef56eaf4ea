/// The ways of starting a command on a host, by the names that users write: `--launcher slurm`,
/// `via=slurm`.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace dt {

/// kind.cpp and launch/allocation.cpp have names in this order.
enum class StarterKind { kLocal, kSsh, kSlurm, kSge, kMpi, kKubernetes, kCommand };

inline constexpr std::array kStarterKinds = {
    StarterKind::kSsh, StarterKind::kLocal,      StarterKind::kSlurm,  StarterKind::kSge,
    StarterKind::kMpi, StarterKind::kKubernetes, StarterKind::kCommand};

/// It knows a host by its name alone: a user and a port are ssh's.
[[nodiscard]] bool knows_names_only(StarterKind kind);

/// "ssh", "local", "slurm", "sge", "mpi", "kubernetes" or "command".
[[nodiscard]] std::string_view to_text(StarterKind kind);
/// The kind of that name; none has another name.
[[nodiscard]] std::optional<StarterKind> starter_kind(std::string_view name);

}  // namespace dt
