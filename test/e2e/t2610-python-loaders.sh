# timeout=120 cost=20 needs=dttrain
# The DataLoader's processes beside a store, by fork, forkserver and spawn: epoch after epoch, no warning, every sample, and
# none of them is left. A process that is not forked takes seconds to load PyTorch.
. "$(dirname "$0")/lib.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
for way in fork forkserver spawn; do
  size=(-n 2 -s 1) loads=(3 2)
  [ $way = fork ] || is_nightly || { size=(-n 1 -s 1) loads=(2 1); }
  run job dtlaunch "${size[@]}" --max-restarts 0 "$PYTHON" "$DT_SOURCE/test/e2e/python/loaders.py" $way "${loads[@]}"
  expect_status 0
  expect_nothing_left 2
done
