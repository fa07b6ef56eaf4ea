# timeout=180
# Failures at the start: one message that names culprit and remedy, the documented exit code, and no
# leftovers.
. "$(dirname "$0")/lib.sh"

# fails CODE PATTERN OPTIONS...: dtlaunch ends so, saying so, and leaves nothing.
fails() {
  local code=$1 pattern=$2
  shift 2
  say "$*"
  run launch timeout 60 dtlaunch "$@"
  expect_status "$code"
  expect_output launch "$pattern"
  expect_nothing_left 10
  [ ! -e .dtlaunch/lock ] || fail "the lock is still there"
}

run opaque dtlaunch -n 2 -s 0 sh -c 'echo "I am $RANK of $WORLD_SIZE"'
expect_status 0
expect_output opaque '^\[worker 1 localhost\] I am 1 of 2$'

fails 3 'worker [01] on localhost .*exit code 3' -n 2 -s 0 sh -c 'exit 3'
fails 1 'worker 0 on localhost ended: exit code 1: ValueError: no such batch$' -n 1 -s 0 \
  python3 -c 'raise ValueError("no such batch")'
grep -q 'exit code 1: ValueError: no such batch' .dtlaunch/*/events.jsonl || fail "no event has the exception"
fails 137 'killed by signal 9' -n 1 -s 0 sh -c 'kill -9 $$'
fails 127 'no-such-command: not found on host localhost' -n 1 no-such-command
fails 65 'prepare-data failed: exit code 7.*no disk' -n 1 --prepare-data 'echo no disk; exit 7' true

python3 -c 'import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True); time.sleep(60)' \
  >"$T/port" &
_pids+=($!)
wait_for 5 '[ -s "$T/port" ]'
fails 67 "port $(cat "$T/port").*in use" -n 1 --server-port "$(cat "$T/port")" "$DT_BIN/mlp_worker" --epochs 1

! grep -q "no checkpoint is there" "$T/launch.out" || fail "it speaks of checkpoints, and no epoch has begun"
fails 67 'no network interface nosuch0, .*--interface' -n 1 --interface nosuch0 "$DT_BIN/mlp_worker" --epochs 1
run interface dtlaunch -n 1 --interface lo "$DT_BIN/mlp_worker" --epochs 1 --steps-per-epoch 2
expect_status 0

# A missing device: reported once, with its own code, and without a retry.
fails 72 'server 0 on localhost cannot use the device.*no CUDA device.*--server-device cuda:99' -n 1 \
  --checkpoint-every 1 --server-device cuda:99 "$DT_BIN/mlp_worker" --epochs 2
[ "$(grep -c 'rolling_back\|going back' "$T/launch.out")" = 0 ] || fail "tried again"
run auto dtlaunch -n 1 --server-device auto "$DT_BIN/mlp_worker" --epochs 1 --steps-per-epoch 2
expect_status 0
expect_output auto 'server 0: values are on (the CPU: no CUDA device|CUDA device 0)'

mkdir -m 555 "$T/read-only"
if [ "$(id -u)" != 0 ]; then
  fails 1 "$T/read-only.*Permission denied" -n 1 --job-dir "$T/read-only" true
fi
fails 2 'not-there' -n 1 --job-dir /proc/not-there true
