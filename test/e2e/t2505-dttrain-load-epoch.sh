# timeout=120 cost=8 needs=dttrain
# dttrain --load-epoch with another number of workers: the learning rate goes on from the world that the training began with,
# as in the elastic job.
. "$(dirname "$0")/lib.sh"

# job WORKERS OPTIONS...: trains, with lines of metrics in $T/metrics.
job() {
  local workers=$1
  shift
  run job dtlaunch -n "$workers" -s 1 dttrain --network mlp --dataset generated --samples 1024 --lr-smooth-steps 2 \
    --model-prefix "$T/net" --metrics-json "$T/metrics" --lr 0.03 "$@"
  expect_status 0
}
# rate EXPECTED: of the last epoch.
rate() {
  local got
  got=$(tail -n 1 "$T/metrics" | python3 -c 'import json, sys; print("%.4f" % json.load(sys.stdin)["learning_rate"])')
  [ "$got" = "$1" ] || fail "the rate is $got, not $1"
}

job 2 --num-epochs 1
rate 0.0300
job 1 --num-epochs 2 --load-epoch 1
rate 0.0150
say "a checkpoint of the second training still knows where the first began"
job 2 --num-epochs 3 --load-epoch 2
rate 0.0300
job 4 --num-epochs 4 --load-epoch 3
rate 0.0600
expect_nothing_left
