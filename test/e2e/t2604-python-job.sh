# timeout=240 cost=25 needs=dttrain
# dtkv.torch.Job: worlds 1, 3, 2, 1, and the loss of a server in mid-epoch while a DataLoader has batches ready. Each sample is
# used once in every epoch, no worker has a batch of one sample, and all workers have the same weights.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
TRAIN_COMMAND=("$PYTHON" "$DT_SOURCE/test/e2e/python/job.py")

all=(2)
! is_nightly || all+=(0)
for processes in "${all[@]}"; do
  say "a DataLoader with $processes processes"
  rm -rf .dtlaunch host_worker* "$T"/w*.jsonl
  train -n 1 -s 2 --checkpoint-every 1 -- --processes $processes
  printf 'localhost\nlocalhost\n' >>host_worker
  changed 'ADDED localhost' 'ADDED localhost'
  awaits workers=3
  shows 'all(w["values"]["used"] > 0 and w["progress"]["steps_in_epoch"] == 20 for w in s["workers"])'
  shows 'all(w["progress"]["samples_per_s"] > 0 for w in s["workers"])'
  some_epochs 2 1
  printf 'localhost\nlocalhost\n' >host_worker
  changed 'ADDED localhost' 'ADDED localhost' 'REMOVED localhost'
  awaits workers=2
  some_epochs 2
  if [ $processes = 2 ]; then
    kill -KILL "$(pid_of servers 1)"
    happens rolled_back
    some_epochs 3
  fi
  printf 'localhost\n' >host_worker
  changed 'ADDED localhost' 'ADDED localhost' 'REMOVED localhost' 'REMOVED localhost'
  awaits workers=1
  shows 'all(w["progress"]["steps_in_epoch"] == 21 for w in s["workers"])'
  some_epochs 2
  end_job
  python3 "$DT_SOURCE/test/e2e/python/audit.py" "$T"/w*.jsonl >"$T/audit.out" || fail "audit: $(output audit)"
  say "$(output audit)"
  expect_output audit 'of world size 1 .*of world size 2 .*of world size 3'
  ! grep -shE 'Warning|Traceback|Error' "$JOB"/.dtlaunch/*/logs/worker-*.log || fail "a worker complains"
done
