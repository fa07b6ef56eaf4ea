/// `dtagent --pod`: the first process of a pod of Kubernetes whose hosts jobs use by `kubectl
/// exec`.
#pragma once

namespace dt::launcher {

/// The program: returns its exit code. Reaps what it is the parent of. TERM, by which a kubelet
/// says that the pod goes away, is a notice for the agents of all jobs here; the program ends when
/// none is left.
int pod_main();

}  // namespace dt::launcher
