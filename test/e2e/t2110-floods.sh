# timeout=240 cost=25
# Workers that print much at once: every log is whole, byte for byte, however hosts are reached; a link that breaks
# meanwhile changes nothing.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
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
    time.sleep(0.01)
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
# flood NAME OPTIONS...: eight workers, 4 MB each, worker 0 20 MB, and one whose steps are sleeps.
flood() {
  run "$1" dtlaunch -n 9 -s 0 --output none --env LINES "${@:2}" "$PYTHON" "$T/steps.py" 8 "$T/flood"
  expect_status 0
  whole 8
  say "$1: $(cat "$(ls -td .dtlaunch/*/logs | head -n 1)/worker-8.log")"
}

flood local
ssh_hosts 3
flood ssh -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}"
sed 's/:.*//' "$SSH_HOSTS" >"$T/hosts"
rsh="ssh -F $(sed -nE 's/^ssh_config=//p' "$T/ssh.env") {host} {command}"
flood rsh -H "$T/hosts" --rsh "$rsh"
flood binary -H "$T/hosts" --rsh "$rsh" --rsh-binary

say 'links break while spools are full: the volume takes 3 MB/s'
LINES=60000
LD_PRELOAD=$DT_BUILD/test/slow_open/slow_open.so DT_SLOW_KB_PER_S=3000 \
  start cut dtlaunch -n 4 -s 0 --quiet --env LINES -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" "$T/flood"
job=$PID
awaits --start '.volume.queue_bytes>3000000'
for host in 0 1 2; do
  "$DT_SOURCE/scripts/sshd-hosts" kill "$T/ssh" "${SSH_ADDRESSES[host]}"
  "$DT_SOURCE/scripts/sshd-hosts" start-one "$T/ssh" "${SSH_ADDRESSES[host]}"
done
finished cut "$job" 60
expect_status 0
[ "$(event link_down)" -ge 3 ] || fail "no link broke: $(cut -c1-100 "$(story)" | tail -n 5)"
whole 4
expect_nothing_left
