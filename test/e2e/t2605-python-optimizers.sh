# timeout=300 cost=35 needs=dttrain
# dtkv.torch.Optimizer: two workers have the weights of one with the joined batches. With Adam and a schedule, worlds
# 1, 3, 2, a worker that dies and the loss of a server: the workers' states are the same bits in every epoch, and an epoch
# that begins again has the state that it began with.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
is_nightly || share_imports
optimizers=("${WORKER[@]}" "$DT_SOURCE/test/e2e/python/optimizers.py")
TRAIN_COMMAND=("${WORKER[@]}" "$DT_SOURCE/test/e2e/python/replicas.py")

checks=(steps)
! is_nightly || checks+=(closures)
for what in "${checks[@]}"; do
  run job dtlaunch -n 2 -s 1 "${optimizers[@]}" $what --save $what%r
  expect_status 0
  run check "${optimizers[@]}" $what --check ${what}0 ${what}1
  expect_status 0
  say "$(output check)"
done

run job dtlaunch -n 2 -s 1 --max-restarts 0 "${optimizers[@]}" rates
[ "$STATUS" != 0 ] || fail "learning rates that differ are accepted"
expect_output job 'Mismatch: epoch 0, step 0: the learning rate of parameter group 0 is 0.2 here, and 0.15 on average'
expect_output job 'RuntimeError: told of the rates'
if is_nightly; then
  run job dtlaunch -n 2 -s 1 --max-restarts 0 "${optimizers[@]}" shapes
  [ "$STATUS" != 0 ] || fail "shapes that differ are accepted"
  expect_output job "Mismatch: key '(weight' has 6|bias' has 1) elements of float32, from worker 0; worker 1 wants (12|2) elements of float32"
fi

rm -rf .dtlaunch
train -n 1 -s 2 --max-restarts 3 --checkpoint-every 1 --
printf 'localhost\nlocalhost\n' >>host_worker
changed 'ADDED localhost' 'ADDED localhost'
awaits workers=3
some_epochs 2 1
say "worker 2 is killed in mid-epoch, and its successor joins"
kill -KILL "$(pid_of workers 2)"
changed 'ADDED localhost' 'ADDED localhost' 'REMOVED localhost' 'ADDED localhost'
awaits workers=3
some_epochs 2 3
say "a worker leaves"
printf 'localhost\nlocalhost\n' >host_worker
changed 'ADDED localhost' 'ADDED localhost' 'REMOVED localhost' 'ADDED localhost' 'REMOVED localhost'
awaits workers=2
some_epochs 2
say "a server is lost"
kill -KILL "$(pid_of servers 1)"
happens rolled_back
some_epochs 3
end_job
run audit python3 "$DT_SOURCE/test/e2e/python/audit.py" "$T"/w*.jsonl
expect_status 0
say "$(output audit)"
expect_output audit 'of world size 1 .*of world size 2 .*of world size 3; 2 begun again'
! grep -shE 'Warning|Traceback|Error' "$JOB"/.dtlaunch/*/logs/worker-*.log || fail "a worker complains"
