# timeout=120
# The supervisor dies while the shared volume stalls, for longer than the limit of a call on it: the
# restarted one tolerates that, and the job continues.
[ "$(id -u)" = 0 ] && [ -w /dev/fuse ] || { echo "SKIPPED: root and /dev/fuse are needed"; exit 77; }
[ -n "${DT_OWN_MOUNTS-}" ] || DT_OWN_MOUNTS=1 exec unshare --mount bash "$0"
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
mkdir "$T/disk"
server=$(PYTHONDONTWRITEBYTECODE=1 python3 -c 'import sys
sys.path.insert(0, sys.argv[1] + "/test/chaos")
import hosts
print(hosts.mount_volume(*sys.argv[2:]))' "$DT_SOURCE" "$T/disk" "$JOB" "$T/volume" 2>"$T/mount.out") || skip "no FUSE: $(output mount)"
_pids+=("$server")
cd "$JOB"
train -n 1 --
supervisor=$(supervisor)
hash sleep  # bash looks at "." before it searches for a command
kill -STOP "$server"
kill -KILL "$supervisor"
sleep 13  # how long it stalls, not a wait
kill -CONT "$server"
awaits term=2
some_epochs 2

mkdir "$JOB/empty"
say 'while it stalls, dtctl asks the supervisor all the same, and a new dtlaunch ends with the reason'
kill -STOP "$server"
cd /
start check dtlaunch --check=quick --job-dir "$JOB" -n 1 true
CHECK=$PID
start hosts dtlaunch -H "$JOB/hosts" -n 1 true
HOSTS=$PID
start resume dtlaunch --resume "$JOB"
RESUME=$PID
start events dtctl --job-dir "$JOB" events
EVENTS=$PID
run status timeout 60 dtctl --job-dir "$JOB" status
expect_status 0
expect_output status 'the shared volume has not answered for'
run wait timeout 60 dtctl --job-dir "$JOB" wait 'workers=1' --timeout 20
expect_status 0
finished dtctl "$EVENTS" 30
expect_status 3
expect_output events "job folder $JOB: the volume has not answered for 5 s on this machine"
before=$(date +%s%3N)
start late dtctl --job-dir "$JOB/empty" wait --start 'workers=1' --timeout 6
LATE=$PID
most=0
while alive "$LATE"; do
  ask=$(pgrep -c -P "$LATE" || true)
  most=$((ask > most ? ask : most))
  nap  # between two looks, not a wait
done
took=$(($(date +%s%3N) - before))
finished dtctl "$LATE" 5
expect_status 4
expect_output late "waited in vain: no job was started in $JOB/empty"
[ "$most" -eq 1 ] || fail "$most processes of one dtctl hang on the volume"
[ "$took" -lt 9000 ] || fail "dtctl wait --timeout 6 took $took ms"
for one in "check $CHECK" "hosts $HOSTS" "resume $RESUME"; do
  finished "${one% *}" "${one#* }" 30
  expect_status 1
  expect_output "${one% *}" "$JOB.*: the volume has not answered for 20 s on this machine: is its server there"
done
run stop timeout 60 dtctl --job-dir "$JOB" stop
expect_status 0
kill -CONT "$server"
cd "$JOB"
finished dtlaunch "$JOB_PID" 60
expect_status 130
expect_nothing_left

say "a home on such a volume does not keep the journal"
run away env -u XDG_STATE_HOME HOME="$JOB" dtlaunch -n 1 -s 0 true
expect_status 0
expect_output away 'the journal lies in /var/tmp/dtlaunch-0: .* is on FUSE'
state=$(python3 -c 'import json; print(json.load(open(".dtlaunch/current.json"))["state_dir"])')
case $state in /var/tmp/dtlaunch-0/*) rm -rf "$state" ;; *) fail "the journal was in $state" ;; esac
run kept env XDG_STATE_HOME="$JOB/state" dtlaunch -n 1 -s 0 true
expect_status 0
expect_output kept 'the journal lies in .*/state/dtlaunch \(XDG_STATE_HOME\), which is on FUSE'
cd / && umount --lazy "$JOB"
