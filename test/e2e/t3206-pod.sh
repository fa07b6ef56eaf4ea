# timeout=200 cost=12
# dtagent --pod as the first process of pods, here pid namespaces: it reaps, a TERM is a notice for the agents of its pod alone, and it
# ends after them; without an agent at once.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
[ "$(id -u)" = 0 ] || skip "root is needed for pods that are namespaces"
mkdir "$T/bin" "$T/pods"
# pod NAME: begins it; sets PID, and $T/pods/NAME.pid has its first process.
pod() {
  mkdir -m 700 "$T/pods/$1"
  start "$1" env XDG_RUNTIME_DIR="$T/pods/$1" unshare --pid --fork --mount-proc --kill-child dtagent --pod
  wait_for 5 "[ -n \"\$(cat /proc/$PID/task/$PID/children)\" ]"
  tr -d ' ' <"/proc/$PID/task/$PID/children" >"$T/pods/$1.pid"
}
cat >"$T/bin/enter" <<END
#!/bin/sh
pod=\$1
shift
exec env XDG_RUNTIME_DIR="$T/pods/\$pod" nsenter -t "\$(cat "$T/pods/\$pod.pid")" -p -m -- "\$@"
END
chmod +x "$T/bin/enter"
pod pod-a
A=$PID
pod pod-b
B=$PID

say "it reaps what others leave to it"
"$T/bin/enter" pod-a sh -c '(sleep 0.1 &); sleep 0.3'  # how long they last, not a wait
wait_for 5 "! ps --no-headers -o stat --ppid $(<"$T/pods/pod-a.pid") | grep -q Z" || fail "zombies: $(ps -ef | grep defunct)"

echo pod-a >hosts
train -n 1 -s 1 -H hosts --rsh "$T/bin/enter {host} {command}" --notice-grace 30s --notice-margin 5s --
echo pod-b >>host_worker
changed "ADDED pod-b"
members 0,1

say "TERM: the workers of this pod leave at a boundary, then it ends; the other pod stays"
kill -TERM "$(<"$T/pods/pod-b.pid")"
changed "ADDED pod-b" "REMOVED pod-b"
finished pod-b "$B" 20
expect_status 0
[ "$(event worker_ended '"code":0.*"worker":1')" = 1 ] || fail "the worker was killed: $(grep worker_ended "$(story)")"
some_epochs 3
members 0
alive "$A" || fail "pod-a has ended"

say "without an agent TERM ends it at once"
dtctl stop >/dev/null
finished job "$JOB_PID" 30
alive "$A" || fail "pod-a ends with a job"
kill -TERM "$(<"$T/pods/pod-a.pid")"
finished pod-a "$A" 5
expect_status 0
expect_nothing_left
