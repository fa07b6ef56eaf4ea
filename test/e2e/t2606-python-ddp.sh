# timeout=300 cost=35 needs=dttrain
# Scripts with DistributedDataParallel and dtkv.torch's hook: PyTorch's MNIST example learns under worlds 1, 3, 2 as it
# does in a world of 2; a model that uses a branch on one worker only trains on when the lead dies and a server is lost.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
is_nightly || share_imports
mnist=("${WORKER[@]}" "$DT_SOURCE/test/e2e/python/mnist_ddp.py")
audit() {
  run audit python3 "$DT_SOURCE/test/e2e/python/audit.py" "$T"/w*.jsonl
  expect_status 0
  say "$(output audit)"
  expect_output audit 'of world size 1 .*of world size 2 .*of world size 3'
  ! grep -shE 'Traceback|Error' "$JOB"/.dtlaunch/*/logs/worker-*.log || fail "a worker complains"
}
# accuracy LOG: of its last epoch.
accuracy() { grep '"end"' "$1" | tail -n 1 | sed -E 's/.*"accuracy":([0-9.]+).*/\1/'; }
three_then_two() {
  printf 'localhost\nlocalhost\n' >>host_worker
  changed 'ADDED localhost' 'ADDED localhost'
  awaits workers=3
  some_epochs 2 1
  printf 'localhost\nlocalhost\n' >host_worker
  changed 'ADDED localhost' 'ADDED localhost' 'REMOVED localhost'
  awaits workers=2
  some_epochs 2
}

run fixed dtlaunch -n 2 -s 1 "${mnist[@]}" --log "$T/fixed%i.jsonl" --epochs 6 --steps-per-epoch 20
expect_status 0
TRAIN_COMMAND=("${mnist[@]}")
train -n 1 -s 2 --
three_then_two
some_epochs 2
end_job
audit
fixed=$(accuracy "$T/fixed0.jsonl") elastic=$(accuracy "$T/w0.jsonl")
say "accuracy $fixed in a fixed world, $elastic in worlds 1, 3, 2"
python3 -c "import sys; sys.exit(not 0.9 <= $fixed <= $elastic + 0.03)" || fail "it does not learn"

rm -rf .dtlaunch host_worker* "$T"/w*.jsonl
TRAIN_COMMAND=("${WORKER[@]}" "$DT_SOURCE/test/e2e/python/replicas.py")
train -n 1 -s 2 --max-restarts 3 --checkpoint-every 1 -- --ddp
three_then_two
say "the lead is killed in mid-epoch, and its successor joins"
kill -KILL "$(pid_of workers 0)"
changed 'ADDED localhost' 'ADDED localhost' 'REMOVED localhost' 'REMOVED localhost' 'ADDED localhost'
awaits workers=2
some_epochs 2 3
say "a server is lost"
kill -KILL "$(pid_of servers 1)"
happens rolled_back
some_epochs 3 3
end_job
audit
