# timeout=240 cost=35
# The master is lost, its hosts are not: another one takes over the job's folder. Masters are namespaces here:
# each has its own host name, boot id and local folders, which no other one sees.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
unshare --uts --mount true 2>/dev/null || skip "no namespaces (root is needed)"
ssh_hosts 2
mkdir -m 700 "$T/a" "$T/b" "$T/c"

# on MASTER OUTPUT COMMAND...
on() {
  local master=$1 name=$2
  shift 2
  start "$name" env MASTER="$master" T="$T" unshare --uts --mount bash -c '
    hostname "master-$MASTER"
    echo "boot-of-$MASTER" >"$T/boot-$MASTER"
    mount --bind "$T/boot-$MASTER" /proc/sys/kernel/random/boot_id
    for other in a b c; do [ $other = $MASTER ] || mount -t tmpfs -o mode=700 none "$T/$other"; done
    mkdir -m 700 -p "$T/$MASTER/run"
    export XDG_RUNTIME_DIR=$T/$MASTER/run XDG_STATE_HOME=$T/$MASTER/state
    exec "$@"' on "$@"
}
pointer() { python3 -c "import json; print(json.load(open('.dtlaunch/current.json'))['$1'])"; }
workers() { left_over | awk '$2 ~ /elastic_worker$/ { print $1 }'; }

on a first dtlaunch -n 2 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --env WORD=hush --checkpoint-every 1 --poll-interval 300ms \
  --elastic-training-enabled "$DT_BIN/elastic_worker" --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20
first=$PID
PATIENCE=60 awaits --start 'checkpoint>=0'
supervisor=$(pointer pid)
kill -STOP "$supervisor"  # it must not end the job because dtlaunch died
kill -KILL "$first" "$supervisor"
finished first "$first" 10
old=$(workers)
[ "$(wc -w <<<"$old")" = 2 ] || fail "not two workers: $old"

say "values of --env are with the old master only"
! grep -rq hush .dtlaunch || fail "a value of --env lies on the volume"
on b poor dtlaunch --resume "$JOB"
finished poor "$PID" 30
expect_status 2
expect_output poor 'values of WORD, which lie on the master'
[ "$(workers)" = "$old" ] || fail "the job was touched: $(workers), not $old"
export WORD=hush

say "the folder's lock names a master of which nothing can be seen"
on b refused dtlaunch --resume "$JOB"
finished refused "$PID" 30
expect_status 68
expect_output refused 'was run by the master .* and its journal is not on this machine'
expect_output refused 'holds .*on host master-a.*if it is surely gone .*--resume .* --take-over goes on with its job'
[ "$(workers)" = "$old" ] || fail "the job was touched: $(workers), not $old"

say "it is surely gone"
on b second dtlaunch --resume "$JOB" --take-over
second=$PID
wait_for 60 'grep -q "Going on with epoch" "$T/second.out"' || fail "it does not go on"
for pid in $old; do ! alive "$pid" || fail "worker $pid of the first job runs beside the second"; done
PATIENCE=60 awaits --start workers=2 'epoch>=0' 'checkpoint>=0'

say "it is not gone at all"
on c third dtlaunch --resume "$JOB" --take-over
third=$PID
finished second "$second" 60
expect_status 130
expect_output second 'was taken over from master-c .*: everything is stopped here, and no file is touched any more'
# Before that, a separate supervisor ends the former job, and also answers.
wait_for 60 'grep -q "Going on with epoch" "$T/third.out"' || fail "it does not go on"
PATIENCE=60 awaits --start workers=2 'epoch>=0'
[ ! -s host_worker_log ] || fail "lines of another job: $(cat host_worker_log)"
[ "$(pointer ended)" = None ] || fail "the pointer is the former master's"
run stop dtctl stop
finished third "$third" 30
expect_status 130
expect_nothing_left
