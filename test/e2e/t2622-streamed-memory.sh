# timeout=60 cost=10 needs=dttrain
# A worker that streams layers has memory for those that are under way, and not for all of them.
. "$(dirname "$0")/lib.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
for transport in shm tcp; do
  run $transport dtlaunch -n 1 -s 1 --transport $transport "$PYTHON" "$DT_SOURCE/test/e2e/python/streamed.py"
  expect_status 0
  output $transport
  awk '/layers more/ { n++; if ($(NF - 2) > 3) bad = 1 } END { exit n != 4 || bad }' "$T/$transport.out" ||
    fail "over $transport the worker has more than three layers"
done
expect_nothing_left
