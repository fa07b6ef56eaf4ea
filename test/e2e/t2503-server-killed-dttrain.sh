# A server is killed while LeNet trains, with and without overlap: the same workers go on from the
# checkpoint and end with the weights of a job that nothing happened to, to the last bit.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"

# job NAME OPTIONS...: its models are $T/NAME-0001.safetensors and so on.
job() {
  local name=$1
  shift
  start "$name" dtlaunch -n 2 -s 2 --deterministic --checkpoint-every 1 dttrain --network lenet --dataset generated \
    --samples 960 --batch-size 16 --num-epochs 6 --model-prefix "$T/$name" "$@"
  JOB_PID=$PID
}
job undisturbed
finished undisturbed "$JOB_PID" 120
expect_status 0
for how in '' --no-overlap; do
  name=killed$how
  job "$name" $how
  PATIENCE=60 shows '(s["checkpoint"]["newest"] or 0) >= 2'
  kill -KILL "$(dtctl status --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["servers"][1]["pid"])')"
  finished "$name" "$JOB_PID" 120
  expect_status 0
  expect_output "$name" 'back to the checkpoint of epoch [2-5], with new servers'
  [ "$(grep -c 'Servers were lost: it begins again' "$T/$name.out")" = 2 ] || fail "not both workers went back"
  cmp "$T/undisturbed-0006.safetensors" "$T/$name-0006.safetensors" || fail "other weights"
  expect_nothing_left
done
