# launch_slurm.sh BIN NODES RUNS COMMAND WORD: what launch_bench.sh does with --launcher slurm.
#
# Starts and ends one short command on each node of an allocation: by one srun for all nodes, by a shell loop that
# starts one srun for each node, by dtctl exec, by a whole dtlaunch job, and by mpirun. Slurm's daemons run in a
# namespace of this machine (test/e2e/slurm.sh); needs root and what scripts/install-deps --schedulers installs.
top=$(cd "$(dirname "$0")/../.." && pwd)
export DT_BIN=$1 DT_SOURCE=$top DT_BUILD=${1%/*}
nodes=$2 runs=$3 command=$4 only=$5
. "$top/test/e2e/lib.sh"
. "$top/test/e2e/slurm.sh"
slurm_up "$nodes"
allocate "$nodes"
# What salloc gives its shell: Open MPI also reads the old names.
export SLURM_JOB_ID=$SLURM_JOB SLURM_JOBID=$SLURM_JOB SLURM_JOB_NODELIST="n[1-$nodes]" SLURM_NODELIST="n[1-$nodes]" SLURM_NNODES=$nodes
export SLURM_TASKS_PER_NODE="1(x$nodes)" SLURM_JOB_CPUS_PER_NODE="8(x$nodes)"
cat >"$T/loop" <<EOT
#!/bin/sh
i=0
while [ \$((i += 1)) -le $nodes ]; do
  srun --jobid=$SLURM_JOB --overlap --nodes=1 --ntasks=1 --nodelist=n\$i --cpu-bind=none --mem=0 --mpi=none $command &
  pids="\$pids \$!"
done
for pid in \$pids; do wait \$pid || exit; done
EOT
chmod 755 "$T/loop"
python3 - "$nodes" "$command" "$T/loop" "$SLURM_JOB" "${SLURM_NS[@]}" <<'END' >"$T/tools.json"
import json, shutil, sys
nodes, command, loop, job, *inside = sys.argv[1:]
tools = {
    "a loop of sruns": [loop],
    "srun -N all": ["srun", "--jobid=" + job, "--overlap", "-N", nodes, "-n", nodes, "--mem=0", "--mpi=none", command],
    "dtctl exec": ["dtctl", "exec", "--parallel", "64", "--", command],
    "dtlaunch, whole job": ["dtlaunch", "-q", "-s", "0", command],
}
if shutil.which("mpirun"):
    tools["mpirun -np all"] = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--map-by", "node", "-np", nodes, command]
print(json.dumps({name: [inside + words, {}] for name, words in tools.items()}))
END
run first "${SLURM_NS[@]}" dtlaunch -s 0 "$command"
expect_status 0
python3 "$top/test/bench/launch_table.py" "$nodes nodes of Slurm" "$runs" "$only" <"$T/tools.json"
in_slurm scancel "$SLURM_JOB"
wait_for 10 '[ -z "$(left_over | grep slurmstepd)" ]'
