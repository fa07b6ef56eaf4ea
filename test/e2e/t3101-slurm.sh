# timeout=240 cost=40 schedulers
# An elastic job inside a Slurm allocation: its size changes, srun is killed, the supervisor is killed, and nothing is
# restarted; an agent is killed; the allocation is cancelled, Ctrl-C, dtlaunch and its supervisor are killed: nothing is left.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
. "$(dirname "$0")/slurm.sh"
. "$(dirname "$0")/flood.sh"
slurm_up 3 "${PROCTRACK:-linuxproc}"
allocate 3
export SLURM_JOB_ID=$SLURM_JOB SLURM_JOB_NODELIST=n[1-3]
TRAIN_PREFIX=("${SLURM_NS[@]}")
# of_nodes: what runs on nodes, and what starts it there.
of_nodes() { left_over | grep -E "dtagent|elastic_worker|dtserver|srun " || true; }

say "any bytes and any script go to a node and back"
in_slurm starter_echo slurm n2 "$SLURM_JOB" || fail "by srun"

say "1 -> 3 -> 1 workers, on nodes of the allocation, in a copy of the present folder"
echo data >"it's data"
train -n 1 --sync-dst-dir "$T/a copy" --
echo n2 >>host_worker
changed "ADDED n2"
echo n3 >>host_worker
changed "ADDED n2" "ADDED n3"
members 0,1,2
for pid in $(pids_of workers); do
  [ "$(readlink "/proc/$pid/cwd")" = "$T/a copy" ] || fail "worker $pid is in $(readlink "/proc/$pid/cwd")"
done
cmp "it's data" "$T/a copy/it's data"
[ ! -e "$T/a copy/.dtlaunch" ] || fail ".dtlaunch was copied"
sed -i 2d host_worker
changed "ADDED n2" "ADDED n3" "REMOVED n2"
members 0,2

say "each srun is killed: attached again, nothing restarted"
before="$(pids_of workers) $(pids_of servers)"
for node in n1 n3; do
  # Other clusters of this machine have a job of the same number.
  kill -KILL $(pgrep --ns "$(supervisor)" --nslist net -f "srun --jobid=$SLURM_JOB .*--nodelist=$node ")
  happens link_down "$node"
  awaits "host $node up"
done
some_epochs 2
[ "$(pids_of workers) $(pids_of servers)" = "$before" ] || fail "something was restarted"

say "the supervisor is killed: its sruns go with it, a new one attaches"
kill_supervisor_with srun
awaits "host n1 up" "host n3 up"
some_epochs 2
[ "$(pids_of workers) $(pids_of servers)" = "$before" ] || fail "something was restarted"
members 0,2
worker_log once "$T/w0.jsonl"

say "an agent is killed: its worker is gone, another one joins there"
kill_agent_of n3
members 0,3

say "the allocation is cancelled: nothing is left on its nodes"
in_slurm scancel "$SLURM_JOB"
STEP=0.5 wait_for 10 '[ -z "$(of_nodes | grep -v srun)" ]' || fail "left after scancel: $(of_nodes)"
dtctl stop >"$T/stop.out" 2>&1 || true
finished dtlaunch "$JOB_PID" 20
[ -z "$(of_nodes)" ] || fail "left: $(of_nodes)"

# Each with a check of the nodes' data before the workers.
allocate 2
export SLURM_JOB_ID=$SLURM_JOB SLURM_JOB_NODELIST=n[1-2]
for how in 'Ctrl-C' 'dtlaunch and its supervisor are killed'; do
  say "$how"
  rm -rf .dtlaunch host_worker*
  train -n 2 --orphan-timeout 3s --prepare-data "touch $T/prepared-\$DT_HOST" --
  [ -e "$T/prepared-n1" ] && [ -e "$T/prepared-n2" ] || fail "not prepared: $(ls "$T")"
  rm "$T"/prepared-*
  if [ "$how" = Ctrl-C ]; then
    kill -INT "$JOB_PID"
    finished dtlaunch "$JOB_PID" 20
    expect_status 130
  else
    kill -KILL "$JOB_PID" "$(supervisor)"
  fi
  STEP=0.5 wait_for 10 '[ -z "$(of_nodes)" ]' || fail "left: $(of_nodes)"
done

say "floods by srun: each log is whole"
rm -rf .dtlaunch host_worker*
DTLAUNCH=(in_slurm dtlaunch)
flood srun

say "by mpirun, which starts its daemons by srun: a command beside the job does not wait for it"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export SLURM_JOBID=$SLURM_JOB SLURM_NODELIST=$SLURM_JOB_NODELIST SLURM_NNODES=2 SLURM_TASKS_PER_NODE='1(x2)'  # mpirun's
rm -rf .dtlaunch host_worker*
echo n2 >"$T/by-mpirun"
train -n 1 -H "$T/by-mpirun" --launcher mpi --
run command in_slurm dtctl exec --timeout 20 -- echo done
expect_status 0
expect_output command '^.n2. done'
kill -INT "$JOB_PID"
finished dtlaunch "$JOB_PID" 20
expect_status 130
STEP=0.5 wait_for 10 '[ -z "$(of_nodes)" ]' || fail "left: $(of_nodes)"
in_slurm scancel "$SLURM_JOB"
STEP=0.5 wait_for 20 '! left_over | grep -q slurmstepd' || fail "Slurm's steps do not end: $(left_over)"
