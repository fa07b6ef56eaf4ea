# timeout=900 cost=300 cgroups schedulers nightly
# A Slurm job whose time is shorter than its work: dtlaunch saves, ends with 75 and queues the job again, until the
# work is done. The weights at the end are those of an undisturbed job, bit by bit.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/slurm.sh"
KILL_WAIT=20 SLURM_CRED_EXPIRE=5 slurm_up 2 cgroup
EPOCHS=300  # two minutes
worker="$DT_BIN/elastic_worker --samples 200 --epochs $EPOCHS --steps-per-epoch 20 --hash --momentum 0.9"
last_weights() { grep -Eo "Epoch\[$((EPOCHS - 1))\] Weights=[0-9a-f]{16}" "$1" | sort -u | cut -d= -f2; }

mkdir "$T/undisturbed"
run undisturbed env -C "$T/undisturbed" dtlaunch -n 2 -s 1 --deterministic $worker --step-ms 0
expect_status 0
want=$(last_weights "$T/undisturbed.out")
[ ${#want} = 16 ] || fail "the workers do not agree: $want"

: >"$T/batch.out"
cat >"$T/batch" <<EOT
#!/bin/sh
cd $JOB
exec $DT_BIN/dtlaunch -s 1 --deterministic --requeue --auto-resume --notice-grace 15s --notice-margin 5s $worker --step-ms 20
EOT
in_slurm sbatch --requeue --open-mode=append -t 1 -N 2 -n 2 -o "$T/batch.out" "$T/batch" >"$T/sbatch.out" 2>&1 || fail "$(cat "$T/sbatch.out")"
number=$(sed -nE 's/^Submitted batch job ([0-9]+)$/\1/p' "$T/sbatch.out")
state() { in_slurm scontrol show job "$number" | sed -nE 's/^ *JobState=([A-Z_]+) .*/\1/p'; }
count() { grep -Ec -- "$1" "$T/batch.out" || true; }
# Slurm looks at the time twice a minute: a job may have finished after its end, before that.
finished_late() { [ "$(state)" = TIMEOUT ] && tail -n 1 "$T/batch.out" | grep -q 'the job has finished'; }
while [ "$(state)" != COMPLETED ] && ! finished_late; do
  runs=$(count ': it (begins|goes on with epoch)')
  STEP=1 wait_for 150 '[ "$(count ": it (begins|goes on with epoch)")" -gt '"$runs"' ] || [[ "$(state)" = @(COMPLETED|FAILED|TIMEOUT|CANCELLED|NODE_FAIL) ]]' || fail "$(in_slurm scontrol show job "$number")"
  case $(state) in
    FAILED | TIMEOUT | CANCELLED | NODE_FAIL) finished_late || fail "$(in_slurm scontrol show job "$number")" ;;
  esac
done
again=$(count "^dtlaunch: Slurm job $number is queued again$")
say "$again times queued again"
[ "$again" -ge 1 ] || fail "it was never queued again"
[ "$(count 'it goes on with epoch [0-9]+ from')" = "$again" ] || fail "not each time from a checkpoint"
[ "$(last_weights "$T/batch.out")" = "$want" ] || fail "other weights: $(last_weights "$T/batch.out"), not $want"
STEP=0.5 wait_for 10 '[ -z "$(left_over | grep -E "dt(agent|launch|server|supervisor)|elastic_worker|srun ")" ]' || fail "left: $(left_over)"
