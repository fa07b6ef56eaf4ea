# timeout=300 cost=40 cgroups schedulers nightly
# A Slurm job that holds one of the hosts is preempted, with a GraceTime of 10 s: its worker leaves at a boundary before
# Slurm's KILL, and the other worker trains on. Processes are tracked by cgroups: with linuxproc Slurm sends its TERM to
# the workers, too.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
. "$(dirname "$0")/slurm.sh"
SLURM_GRACE=10
slurm_up 2 cgroup
allocate 1 -p low -w n2 --exclusive
holder=$SLURM_JOB
TRAIN_PREFIX=("${SLURM_NS[@]}")
printf 'n1 via=local\nn2\n' >"$T/hosts"
cat >"$T/worker" <<'EOT'
#!/bin/sh
"$@" && echo "the last line of worker $DMLC_WORKER_ID"
EOT
chmod 755 "$T/worker"
TRAIN_COMMAND=("$T/worker" "$DT_BIN/elastic_worker")
train -n 1 -s 1 -H "$T/hosts" --rsh "srun --jobid=$holder --overlap --nodes=1 --ntasks=1 --nodelist={host} --cpu-bind=none --mem=0 --mpi=none --export=ALL {command}" --
echo n2 >>host_worker
changed "ADDED n2"
members 0,1
some_epochs 1

say "a job with a higher priority needs the node"
from=$(($(epoch) + 1)) began=$(date +%s%N)
start preemptor "${SLURM_NS[@]}" srun -p high -w n2 -N 1 --exclusive sh -c 'date +%s%N'
changed "ADDED n2" "REMOVED n2"
removed=$(tail -n 1 host_worker_log | cut -d' ' -f4)
event worker_removed 'worker 1 on n2 .*notice: (TERM|CONT) of its scheduler' | grep -q '^[1-9]' || fail "the cause is not the notice"
grep -q 'the last line of worker 1' "$T/job.out" || fail "no last line"
some_epochs 2
worker_log waits "$T/w0.jsonl" 2 $from
worker_log once "$T/w0.jsonl"
finished preemptor "$PID" 60
expect_status 0
echo "REMOVED $(((removed - began) / 1000000)) ms, the other job began $((($(grep -E '^[0-9]{19}$' "$T/preemptor.out") - began) / 1000000)) ms after its submission"
[ "$removed" -lt "$(grep -E '^[0-9]{19}$' "$T/preemptor.out")" ] || fail "it was removed by Slurm's KILL"
dtctl stop >"$T/stop.out" 2>&1 || fail "dtctl stop: $(output stop)"
finished dtlaunch "$JOB_PID" 20
STEP=0.5 wait_for 10 '[ -z "$(left_over | grep -E "dtagent|dtserver|elastic_worker|srun ")" ]' || fail "left: $(left_over)"
