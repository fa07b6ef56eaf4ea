#include "core/files/kind.h"

namespace dt {

bool knows_names_only(StarterKind kind) {
  return kind != StarterKind::kSsh && kind != StarterKind::kLocal;
}

std::string_view to_text(StarterKind kind) {
  constexpr std::string_view kNames[] = {"local", "ssh",        "slurm",  "sge",
                                         "mpi",   "kubernetes", "command"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<StarterKind> starter_kind(std::string_view name) {
  for (const StarterKind kind : kStarterKinds)
    if (to_text(kind) == name) return kind;
  return std::nullopt;
}

}  // namespace dt
