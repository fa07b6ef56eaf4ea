# Workers that print much at once; after lib.sh and elastic.sh. flood NAME OPTIONS...
cat >"$T/flood" <<'EOT'
#!/bin/sh
lines=$LINES
[ "$RANK" != 0 ] || lines=$((lines * 5))
exec seq -f "worker $RANK says %012.0f ............" 1 "$lines"
EOT
# A step is a sleep; the last worker tells how long its steps took.
cat >"$T/steps.py" <<'EOT'
import os, sys, time
if os.environ["RANK"] != sys.argv[1]:
    os.execv(sys.argv[2], sys.argv[2:])
began = time.monotonic()
for step in range(150):
    time.sleep(0.01)  # how long a step lasts, not a wait
print("steps took", round(time.monotonic() - began, 3))
EOT
chmod +x "$T/flood"
export LINES=100000  # of 41 bytes
# whole N: the logs of workers 0 to N-1.
whole() {
  local rank logs
  logs=$(ls -td .dtlaunch/*/logs | head -n 1)
  for ((rank = 0; rank < $1; rank++)); do
    RANK=$rank "$T/flood" | cmp - "$logs/worker-$rank.log" ||
      fail "the log of worker $rank is not whole: $(grep -a -m 3 missing "$logs/worker-$rank.log")"
  done
}
# steps NAME OPTIONS... COMMAND...: nine workers, of which the last one sleeps its steps.
steps() {
  run "$1" "${DTLAUNCH[@]}" -n 9 -s 0 --output none --env LINES "${@:2}"
  expect_status 0
  say "$1: $(cat "$(ls -td .dtlaunch/*/logs | head -n 1)/worker-8.log")"
}
# flood NAME OPTIONS...: the others print 4 MB each, worker 0 20 MB; before, undisturbed.
flood() {
  steps "$1, nobody prints" "${@:2}" "$PYTHON" "$T/steps.py" 8 /bin/true
  steps "$1" "${@:2}" "$PYTHON" "$T/steps.py" 8 "$T/flood"
  whole 8
}
DTLAUNCH=(dtlaunch)

