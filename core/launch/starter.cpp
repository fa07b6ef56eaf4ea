#include "core/launch/starter.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "core/files/host_names.h"

namespace dt {
namespace {

constexpr std::string_view kHostWord = "{host}";
constexpr std::string_view kCommandWord = "{command}";

/// As sshd's of the shell dtlaunch was called in: an agent would take its master for its host.
constexpr const char* kOfSsh[] = {"SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"};

StarterCommand local_words() { return {.argv = {kHostShell}, .without = {}, .with = {}}; }

StarterCommand slurm_words(const Starter& starter, std::string_view host) {
  StarterCommand out;
  out.argv = {"srun"};
  if (!starter.job.empty()) out.argv.push_back("--jobid=" + starter.job);
  // --overlap: the job's resources are for all of its steps. Without it a step waits for ever for
  // those that another one has.
  out.argv.insert(out.argv.end(),
                  {"--overlap", "--nodes=1", "--ntasks=1", fmt::format("--nodelist={}", host),
                   "--cpu-bind=none", "--mem=0", "--mpi=none", "--kill-on-bad-exit=0",
                   "--export=ALL", "--", kHostShell});
  out.without = {"SLURM_*_PER_*",   "SLURM_CPU_BIND*",    "SLURM_MEM_BIND*",    "SLURM_EXACT",
                 "SLURM_EXCLUSIVE", "SLURM_HINT",         "SLURM_DISTRIBUTION", "SLURM_LABELIO",
                 "SLURM_STD*MODE",  "SLURM_UNBUFFEREDIO", "SLURM_RELATIVE",     "SLURM_MULTI_PROG",
                 "SLURM_WHOLE",     "SLURM_IMMEDIATE",    "SLURM_GPUS",         "SLURM_GPU_*"};
  return out;
}

/// The job's script has the slot of its own host where the parallel environment says that the job
/// is its first task; so nothing more is asked of SGE there.
StarterCommand sge_words(const Starter& starter, std::string_view host) {
  if (host == starter.here) return local_words();
  StarterCommand out;
  out.argv = {"qrsh", "-inherit", "-noshell", "-V", std::string(host), kHostShell};
  return out;
}

StarterCommand mpi_words(std::string_view host) {
  StarterCommand out;
  out.argv = {"mpirun", "-np", "1", "--host", std::string(host), "--bind-to", "none", kHostShell};
  // In a Slurm allocation mpirun starts its daemons by srun, whose step waits for ever for the
  // resources of the one before.
  out.with = {"SLURM_OVERLAP=1"};
  return out;
}

StarterCommand kubernetes_words(const Starter& starter, std::string_view host) {
  StarterCommand out;
  out.argv = {"kubectl", "exec", "-i"};
  if (!starter.pod_namespace.empty())
    out.argv.insert(out.argv.end(), {"-n", starter.pod_namespace});
  out.argv.emplace_back(host);
  if (!starter.container.empty()) out.argv.insert(out.argv.end(), {"-c", starter.container});
  out.argv.insert(out.argv.end(), {"--", kHostShell});
  return out;
}

void replace_all(std::string& word, std::string_view what, std::string_view by) {
  for (std::size_t at = word.find(what); at != std::string::npos;
       at = word.find(what, at + by.size()))
    word.replace(at, what.size(), by);
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Whether `name` is `pattern`, in which "*" stands for any text.
bool fits(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t at = star; at <= name.size(); ++at)
    if (fits(rest, name.substr(at))) return true;
  return false;
}

}  // namespace

StarterTraits traits_of(const Starter& starter) {
  switch (starter.kind) {
    case StarterKind::kLocal:
    case StarterKind::kSsh:
      return {false, false, false, ""};
    case StarterKind::kSlurm:
      return {true, true, false, "slurm-client"};
    case StarterKind::kSge:
      return {false, false, true, "gridengine-client"};
    case StarterKind::kMpi:
      return {false, false, false, "openmpi-bin"};
    case StarterKind::kKubernetes:
      return {false, false, false, "kubernetes-client"};
    case StarterKind::kCommand:
      return {!starter.rsh_binary, true, false, ""};
  }
  return {};
}

Result<StarterCommand> starter_command(const Starter& starter, std::string_view host) {
  StarterCommand out;
  switch (starter.kind) {
    case StarterKind::kSsh:
      return fail(ErrorKind::kInvalid, "ssh needs no program that starts commands");
    case StarterKind::kLocal:
      return local_words();
    case StarterKind::kSlurm:
      out = slurm_words(starter, host);
      break;
    case StarterKind::kSge:
      out = sge_words(starter, host);
      break;
    case StarterKind::kMpi:
      out = mpi_words(host);
      break;
    case StarterKind::kKubernetes:
      out = kubernetes_words(starter, host);
      break;
    case StarterKind::kCommand: {
      auto words = rsh_words(starter.rsh);
      if (!words) return tl::unexpected(words.error());
      for (std::string& word : *words) {
        replace_all(word, kHostWord, host);
        replace_all(word, kCommandWord, kHostShell);
      }
      out.argv = std::move(*words);
      break;
    }
  }
  out.without.insert(out.without.end(), std::begin(kOfSsh), std::end(kOfSsh));
  return out;
}

bool is_without(const StarterCommand& command, std::string_view name) {
  return std::ranges::any_of(command.without,
                             [name](const std::string& pattern) { return fits(pattern, name); });
}

Result<std::vector<std::string>> rsh_words(std::string_view text) {
  for (const std::string_view part : {kHostWord, kCommandWord})
    if (text.find(part) == std::string_view::npos)
      return fail(ErrorKind::kInvalid,
                  "--rsh '{}': {} is missing: write where it goes, as in "
                  "--rsh 'docker exec -i {{host}} {{command}}'",
                  text, part);
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < text.size();
    if (quote == 0 && is_space(c)) {
      if (word) words.push_back(*std::exchange(word, std::nullopt));
      continue;
    }
    if (!word) word.emplace();
    if (escapes)
      *word += text[++i];
    else if (quote != 0 ? c == quote : c == '\'' || c == '"')
      quote = quote != 0 ? '\0' : c;
    else
      *word += c;
  }
  if (quote != 0) return fail(ErrorKind::kInvalid, "--rsh '{}': a {} has no end", text, quote);
  if (word) words.push_back(std::move(*word));
  return words;
}

Result<void> check_mpirun(std::string_view version_text) {
  if (version_text.find("Open MPI") != std::string_view::npos ||
      version_text.find("OpenRTE") != std::string_view::npos)
    return {};
  const bool is_intel = version_text.find("Intel") != std::string_view::npos;
  const bool is_hydra = version_text.find("HYDRA") != std::string_view::npos ||
                        version_text.find("MPICH") != std::string_view::npos;
  if (is_intel || is_hydra)
    return fail(ErrorKind::kInvalid,
                "mpirun here is {}, which ends when more than some 100 KB come by its stdin, as "
                "the programs for a host do: use Open MPI's, or --launcher ssh",
                is_intel ? "Intel MPI's" : "MPICH's");
  return fail(ErrorKind::kInvalid,
              "mpirun here is not Open MPI's: \"{}\": use that, or --launcher ssh",
              host_names::shown(version_text.substr(0, version_text.find('\n'))));
}

std::string remedy(StarterKind kind, std::string_view words) {
  const auto has = [words](std::string_view part) {
    return words.find(part) != std::string_view::npos;
  };
  if (kind == StarterKind::kSlurm) {
    if (has("nodes are busy"))
      return "another step of the allocation has the node for itself: start that one with "
             "--overlap, or ask for more in salloc or sbatch";
    if (has("nvalid job id") || has("Job/step already completing") || has("expired"))
      return "the allocation has ended: run inside a new salloc or sbatch";
    if (has("not part of this allocation") || has("node configuration is not available") ||
        has("nvalid node name") || has("node count specification invalid"))
      return "the host is no node of the allocation (squeue shows them), or is down (sinfo -R)";
  }
  if (kind == StarterKind::kSge && has("didn't accept task"))
    return "SGE lets a job start as many tasks at once on another host as the job has slots there, "
           "and none where its parallel environment has control_slaves FALSE (qconf -sp NAME)";
  if (kind == StarterKind::kMpi && has("run as root"))
    return "mpirun asks that root states its will in OMPI_ALLOW_RUN_AS_ROOT and "
           "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM; or use --rsh";
  if (kind == StarterKind::kKubernetes && has("orbidden"))
    return "the verb \"create\" on the resource \"pods/exec\" is to be granted";
  if (kind == StarterKind::kKubernetes && (has("context") || has("connection to the server")))
    return "kubectl reaches no cluster: kubectl config get-contexts shows those that it knows";
  if (kind == StarterKind::kKubernetes && (has("container") && has("not found")))
    return "a pod with several containers needs --rsh 'kubectl exec -i {host} -c NAME -- "
           "{command}'";
  return {};
}

bool waits_for_host(StarterKind kind, std::string_view words) {
  return kind == StarterKind::kSlurm && words.find("nodes are busy") != std::string_view::npos;
}

}  // namespace dt
