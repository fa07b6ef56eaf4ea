# timeout=240 cost=25 needs=dttrain
# A GradScaler with dtkv.torch.Optimizer and with DDP: a step whose gradients overflow on one worker is skipped on all, one
# that has no batch left included. Worlds 1, 3, 2 and the loss of a server: weights, optimizers and scales are the same bits.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
is_nightly || share_imports
TRAIN_COMMAND=("${WORKER[@]}" "$DT_SOURCE/test/e2e/python/replicas.py")

ways=(--ddp)
! is_nightly || ways+=("")
for how in "${ways[@]}"; do
  rm -rf .dtlaunch host_worker* "$T"/w*.jsonl
  train -n 1 -s 2 --checkpoint-every 1 -- --scaler $how
  printf 'localhost\nlocalhost\n' >>host_worker
  changed 'ADDED localhost' 'ADDED localhost'
  awaits workers=3
  some_epochs 2 1
  printf 'localhost\nlocalhost\n' >host_worker
  changed 'ADDED localhost' 'ADDED localhost' 'REMOVED localhost'
  awaits workers=2
  some_epochs 2
  kill -KILL "$(pid_of servers 1)"
  happens rolled_back
  some_epochs 2
  end_job
  run audit python3 "$DT_SOURCE/test/e2e/python/audit.py" "$T"/w*.jsonl
  expect_status 0
  expect_output audit 'of world size 1 .*of world size 2 .*of world size 3'
  scales=$(grep -hoE '"scale":[0-9.]+' "$T"/w*.jsonl | sort -u | wc -l)
  say "$(output audit), $scales scales"
  [ "$scales" -ge 3 ] || fail "the scale did not follow the overflows"
  ! grep -h '"weights":\(NaN\|-\?Infinity\)' "$T"/w*.jsonl || fail "an overflow came into the weights"
  ! grep -shE 'Traceback|Error' "$JOB"/.dtlaunch/*/logs/worker-*.log || fail "a worker complains"
done
