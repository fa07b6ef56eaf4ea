# timeout=300 cost=60 cgroups schedulers nightly
# As t3101, where Slurm tracks the processes of a step by a cgroup: what a step has started ends with it.
PROCTRACK=cgroup
. "$(dirname "$0")/t3101-slurm.sh"
