# timeout=120 cost=20 needs=dttrain
# The DataLoader's processes beside a store, by fork, forkserver and spawn: three epochs, no warning, every sample, and none of
# them is left.
. "$(dirname "$0")/lib.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
for way in fork forkserver spawn; do
  run job dtlaunch -n 2 -s 1 --max-restarts 0 "$PYTHON" "$DT_SOURCE/test/e2e/python/loaders.py" $way
  expect_status 0
  expect_nothing_left 2
done
