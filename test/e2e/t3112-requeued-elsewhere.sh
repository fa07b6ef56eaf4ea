# timeout=300 cost=40 schedulers nightly
# Slurm kills a job in mid-epoch and starts it again on another machine, as after the loss of the batch node: --auto-resume
# takes the folder of the former master over, of which nothing can be seen, and goes on from the newest checkpoint.
# Masters are namespaces: each has its own host name, boot id and local folders.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/slurm.sh"
unshare --uts --mount true 2>/dev/null || skip "no namespaces (root is needed)"
KILL_WAIT=2 SLURM_CRED_EXPIRE=5 slurm_up 2 "${PROCTRACK:-linuxproc}"

cat >"$T/batch" <<EOT
#!/bin/bash
cd $JOB
export MASTER=\${SLURM_RESTART_COUNT:-0}
mkdir -p -m 700 $T/master-{0,1}
exec unshare --uts --mount bash -c '
  hostname master-\$MASTER
  echo boot-of-\$MASTER >$T/boot-\$MASTER
  mount --bind $T/boot-\$MASTER /proc/sys/kernel/random/boot_id
  mount -t tmpfs -o mode=700 none $T/master-\$((1 - MASTER))
  mkdir -m 700 -p $T/master-\$MASTER/run
  export XDG_RUNTIME_DIR=$T/master-\$MASTER/run XDG_STATE_HOME=$T/master-\$MASTER/state
  exec $DT_BIN/dtlaunch -s 1 --checkpoint-every 1 --auto-resume \
    $DT_BIN/elastic_worker --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20'
EOT
: >"$T/batch.out"
in_slurm sbatch --requeue --open-mode=append -N 2 -n 2 -o "$T/batch.out" "$T/batch" >"$T/sbatch.out" 2>&1 || fail "$(cat "$T/sbatch.out")"
number=$(sed -nE 's/^Submitted batch job ([0-9]+)$/\1/p' "$T/sbatch.out")
saved() { ls -d "$JOB"/.dtlaunch/*/checkpoints/epoch-* 2>/dev/null | grep -q epoch-000002; }
STEP=0.3 wait_for 30 saved || fail "no checkpoint: $(cat "$T/batch.out")"
# Nobody of it says goodbye.
for pid in $(left_over | awk '/dtlaunch|dtsupervisor/ { print $1 }'); do kill -KILL "$pid" 2>/dev/null || true; done
in_slurm scontrol requeue "$number"
STEP=0.5 wait_for 60 "grep -qE 'it goes on with epoch [0-9]+ from' '$T/batch.out'" || fail "it does not go on: $(cat "$T/batch.out")"
grep -q 'its journal is not on this machine' "$T/batch.out" || fail "it was no other machine: $(cat "$T/batch.out")"
awaits --start 'epoch>=4'
in_slurm scancel "$number"
STEP=0.5 wait_for 20 '[ -z "$(left_over | grep -E "dt(agent|launch|server|supervisor)|elastic_worker|srun ")" ]' || fail "left: $(left_over)"
STEP=0.5 wait_for 20 '! left_over | grep -q slurmstepd' || fail "Slurm's steps do not end: $(left_over)"
