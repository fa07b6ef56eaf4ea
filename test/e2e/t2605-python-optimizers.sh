# timeout=240 cost=20 needs=dttrain
# dtkv.torch.Optimizer: two workers have the weights of one with the joined batches; with Adam, worlds 1, 3, 2, and a
# worker's death the workers' optimizers are equal bit by bit after each epoch.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
optimizers=$DT_SOURCE/test/e2e/python/optimizers.py

for what in steps closures; do
  run job dtlaunch -n 2 -s 1 "$optimizers" $what --save $what%r
  expect_status 0
  "$optimizers" $what --check ${what}0 ${what}1 || fail "$what: not one worker's weights"
done
