# timeout=400 cost=30 nightly needs=dttrain
# A server is killed while LeNet trains, with and without overlap: the same workers go on from the
# checkpoint, with the weights of a job that nothing happened to, to the last bit.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"

# job NAME EPOCHS OPTIONS...: its models are $T/NAME-0001.safetensors and so on.
job() {
  local name=$1 epochs=$2
  shift 2
  start "$name" dtlaunch -n 2 -s 2 --deterministic --checkpoint-every 1 dttrain --network lenet --dataset generated \
    --samples 480 --batch-size 16 --num-epochs "$epochs" --model-prefix "$T/$name" "$@"
  JOB_PID=$PID
}
most=0
for how in '' --no-overlap; do
  name=killed$how
  # The job does not end by itself, so it cannot end before the kill, however late that is.
  job "$name" 100000 $how
  PATIENCE=60 awaits --start 'checkpoint>=2'
  kill -KILL "$(pid_of servers 1)"
  PATIENCE=60 happens rolled_back
  back=$(sed -nE 's/.*back to the checkpoint of epoch ([0-9]+), with new servers.*/\1/p' "$T/$name.out")
  [ "$back" -ge 2 ] || fail "back to epoch $back"
  # Models are numbered from 1. Models of later epochs come from the new servers.
  last=$((back + 4))
  PATIENCE=60 awaits "epoch>=$last"
  wait_for 60 "[ -s '$T/$name-$(printf %04d $last).safetensors' ]" || fail "no model of epoch $last"
  [ $last -le $most ] || most=$last
  [ "$(grep -c 'Servers were lost: it begins again' "$T/$name.out")" = 2 ] || fail "not both workers went back"
  end_job
  compare[$last]+=" $name"
done
job undisturbed $most
finished undisturbed "$JOB_PID" 120
expect_status 0
for last in "${!compare[@]}"; do
  number=$(printf %04d "$last")
  for name in ${compare[$last]}; do
    cmp "$T/undisturbed-$number.safetensors" "$T/$name-$number.safetensors" || fail "other weights after epoch $last"
  done
done
expect_nothing_left
