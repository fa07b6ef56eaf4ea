#include "core/files/kind.h"

namespace dt {

bool knows_names_only(StarterKind kind) {
  return kind != StarterKind::kSsh && kind != StarterKind::kLocal;
}

std::string_view to_text(StarterKind kind) {
  switch (kind) {
    case StarterKind::kLocal:
      return "local";
    case StarterKind::kSsh:
      return "ssh";
    case StarterKind::kSlurm:
      return "slurm";
    case StarterKind::kSge:
      return "sge";
    case StarterKind::kMpi:
      return "mpi";
    case StarterKind::kKubernetes:
      return "kubernetes";
    case StarterKind::kCommand:
      return "command";
  }
  return "?";
}

std::optional<StarterKind> starter_kind(std::string_view name) {
  for (const StarterKind kind : kStarterKinds)
    if (to_text(kind) == name) return kind;
  return std::nullopt;
}

}  // namespace dt
