# timeout=180 cost=25 schedulers
# dtlaunch finds the Slurm job that it is inside of, alone and in its right place, and its workers see a
# node of the job's and no task of srun.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/slurm.sh"
SLURM_GRES=gpu:4 slurm_up 3
# What a worker sees, one variable a line; nothing of it is read before all of it is there. It stays until every worker
# has begun: MASTER_ADDR is of the lowest rank that is there.
cat >"$T/show" <<'EOT'
#!/bin/bash
{ echo "cores=$(env -u OMP_NUM_THREADS nproc)"; env; } >"$1/seen-$RANK.new" && mv "$1/seen-$RANK.new" "$1/seen-$RANK"
for _ in {1..600}; do
  there=("$1"/seen-?)
  [ ${#there[@]} -lt "$WORLD_SIZE" ] || exit 0
  sleep 0.1  # between two looks, not a wait
done
exit 1
EOT
chmod 755 "$T/show"
sees() { grep -Eqx -- "$2" "$T/seen-$1" || fail "worker $1 does not see $2: $(sort "$T/seen-$1")"; }

say "salloc -N 2: a worker on each node, without -n and -H"
run salloc in_slurm salloc -N 2 --gres=gpu:4 -c 2 dtlaunch -s 0 "$T/show" "$T"
expect_status 0
expect_output salloc '^Slurm job [0-9]+: n\[1-2\], 2 nodes, 2 workers, by srun \(--launcher local: this machine only\)$'
expect_output salloc 'Launching worker node at ip: n2$'
for rank in 0 1; do
  sees $rank 'WORLD_SIZE=2'
  sees $rank "MASTER_ADDR=10.99.0.11"
  sees $rank "DMLC_NODE_HOST=10.99.0.$((11 + rank))"
  sees $rank 'SLURM_JOB_ID=[0-9]+'
  sees $rank 'SLURM_JOB_NODELIST=n\[1-2\]'
  sees $rank 'CUDA_VISIBLE_DEVICES=0,1,2,3'
  sees $rank "cores=$(nproc)"  # task/none confines nobody
  task=$(grep -E '^(SLURM_(PROCID|LOCALID|NODEID|NTASKS|NPROCS|STEP.*|TASKS_PER_NODE|NTASKS_PER_NODE|GTIDS|TASK_PID|CPU_BIND.*|SRUN_.*)|OMPI_.*|PMIX_.*|PMI_.*|PE_HOSTFILE)=' "$T/seen-$rank") &&
    fail "worker $rank sees a task of srun: $task"
done

say "a batch script of four tasks is no step: four workers"
cat >"$T/batch" <<EOT
#!/bin/bash
cd $JOB
exec $DT_BIN/dtlaunch -s 0 $T/show $T
EOT
in_slurm sbatch --wait -N 2 -n 4 --ntasks-per-node=2 -o "$T/batch.txt" "$T/batch" >"$T/sbatch.out" 2>&1 || fail "$(cat "$T/sbatch.out" "$T/batch.txt")"
grep -Eq '2 nodes, 4 workers, by srun' "$T/batch.txt" || fail "$(cat "$T/batch.txt")"
sees 3 'WORLD_SIZE=4'

say "four tasks of srun: four times 2, one sentence"
run tasks in_slurm srun -n 4 --no-kill --kill-on-bad-exit=0 -o "$T/task-%t.txt" dtlaunch -n 1 -s 0 true
expect_status 2
cat "$T"/task-?.txt >"$T/said.out"
[ "$(wc -l <"$T/said.out")" = 1 ] || fail "not one sentence: $(cat "$T/said.out")"
expect_output said '^dtlaunch: srun has started dtlaunch 4 times'

say "one task of srun may call it"
run one in_slurm salloc -N 1 srun -n 1 dtlaunch -s 0 echo said
expect_status 0
expect_output one '\[worker 0 n1\] said$'

say "a node is lost: its command did not end well, though srun does; the job of --no-kill lives on the other"
STEP=0.2 wait_for 20 '[ "$(in_slurm sinfo -h -t idle -o %D)" = 3 ]' || fail "nodes are busy: $(in_slurm sinfo)"
allocate 2 --no-kill -w 'n[1-2]'
inside() { in_slurm env SLURM_JOB_ID="$SLURM_JOB" SLURM_JOB_NODELIST="$1" "${@:2}"; }
start exec "${SLURM_NS[@]}" env -C "$T" SLURM_JOB_ID="$SLURM_JOB" SLURM_JOB_NODELIST='n[1-2]' \
  dtctl exec -- "echo begins; until [ -e '$T/go' ]; do sleep 0.1; done; echo ends"  # between two looks, not a wait
wait_for 10 '[ "$(grep -c "begins$" "$T/exec.out")" = 2 ]' || fail "$(output exec)"
in_slurm scontrol update NodeName=n2 State=DOWN Reason=lost
STEP=0.2 wait_for 20 'grep -q "Node failure on n2" "$T/exec.out"' || fail "$(output exec)"
: >"$T/go"
finished dtctl "$PID" 20
expect_status 65
expect_output exec '^\[n1\] ends$'
expect_output exec '^  n2: the connection ended before the command did, with exit code 0: was the host lost\?$'
! output exec | grep -q '^\[n2\] ends' || fail "$(output exec)"
run less inside 'n[1-2]' dtlaunch -s 0 true
expect_status 2
expect_output less "^dtlaunch: Slurm job $SLURM_JOB has lost nodes: it runs on n1, .* has more: export SLURM_JOB_NODELIST=n1;"
run less inside n1 dtlaunch -s 0 echo said
expect_status 0
in_slurm scancel "$SLURM_JOB"
# The lost machine's; Slurm does not end them.
for pid in $(left_over | sed -nE 's/^([0-9]+) slurmstepd: .*/\1/p'); do kill -KILL "$pid"; done

say "a shell that has outlived its job; another one's nodes; a node that was taken out"
# The nodes of the jobs before are free again.
STEP=0.2 wait_for 20 '[ "$(in_slurm sinfo -h -t idle -o %D)" = 3 ]' || fail "nodes are busy: $(in_slurm sinfo)"
allocate 2 -w 'n[1-2]'
inside() { in_slurm env SLURM_JOB_ID="$SLURM_JOB" SLURM_JOB_NODELIST="$1" "${@:2}"; }
run others inside 'n[2-3]' dtlaunch -s 0 true
expect_status 2
expect_output others "^dtlaunch: Slurm job $SLURM_JOB runs on n\[1-2\], and SLURM_JOB_NODELIST in this shell has other nodes"
run plan inside 'n[1-2]' dtlaunch -s 0 --dry-run true
expect_status 0
expect_output plan "^n1 by srun --jobid=$SLURM_JOB .*--nodelist=n1 .*/bin/sh, not elastic$"
in_slurm scontrol update NodeName=n2 State=DRAIN Reason="bad fan"
run drained inside 'n[1-2]' dtlaunch -s 0 true
expect_status 65
expect_output drained "^dtlaunch: n2 of Slurm job $SLURM_JOB is .*DRAIN.* \(bad fan.*\): begin without it"
run without inside 'n[1-2]' dtlaunch -n 1 -s 0 echo said
expect_status 0
in_slurm scontrol update NodeName=n2 State=RESUME
in_slurm scancel "$SLURM_JOB"
wait_for 10 '[ -z "$(in_slurm squeue -h -j "$SLURM_JOB" -t running,completing 2>/dev/null)" ]'
run stale inside 'n[1-2]' dtlaunch -s 0 true
expect_status 2
expect_output stale "^dtlaunch: (SLURM_JOB_ID is $SLURM_JOB, |Slurm job $SLURM_JOB is ).*unset SLURM_JOB_ID"
start over "${SLURM_NS[@]}" env SLURM_JOB_ID="$SLURM_JOB" SLURM_JOB_NODELIST="n[1-2]" dtlaunch --launcher local -n 1 -s 0 sleep 60
wait_for 10 'grep -q "Launching worker" "$T/over.out"' || fail "no worker: $(output over)"
expect_output over "^dtlaunch: SLURM_JOB_ID=$SLURM_JOB in this shell is of a scheduler's job that is over: it is ignored"
kill -TERM "$PID"
finished dtlaunch "$PID" 10
expect_status 130
run unset in_slurm dtlaunch -n 1 -s 0 echo said
expect_status 0
expect_output unset '\[worker 0 localhost\] said$'
