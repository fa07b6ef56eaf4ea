# timeout=180
# Jobs on this machine: output, exit codes, a second job in the folder, and every way to stop.
. "$(dirname "$0")/lib.sh"
launch() {
  rm -f "$T/job.out"  # not the output of an earlier job
  start job dtlaunch -n 2 -s 0 "$@"
}
says() { wait_for 20 "grep -qs -- '$1' '$T/job.out'" || fail "the job never said: $1"; }
kill_supervisor() {
  local pid
  pid=$(supervisor)
  kill -9 "$pid"
  wait_for 5 "! alive $pid"
}

with_files() { (ulimit -n "$1" && shift && exec "$@"); }
soft_files() { (ulimit -Sn "$1" && shift && exec "$@"); }
# dtlaunch raises its own limit of descriptors; its children have the user's.
run good soft_files 250 dtlaunch -n 2 -s 0 sh -c 'echo "I am $DT_WORKER_ID of $DMLC_NUM_WORKER, $(ulimit -Sn) files"'
expect_status 0
expect_output good 'INFO Launching worker node at ip: localhost$'
expect_output good '^\[worker 0 localhost\] I am 0 of 2, 250 files$'
expect_output good '^\[worker 1 localhost\] I am 1 of 2, 250 files$'
[ "$(ls -A)" = .dtlaunch ] || fail "a job that is not elastic left in its folder: $(ls -A)"
grep -q worker_launched .dtlaunch/*/events.jsonl || fail "no story"
run quiet dtlaunch -q -n 1 -s 0 echo said
expect_status 0
[ ! -s "$T/quiet.out" ] || fail "--quiet said: $(output quiet)"

run elastic dtlaunch -n 2 -s 0 --elastic-training-enabled true
expect_status 0
expect_output elastic 'INFO Created worker host file .*/job/host_worker$'
expect_output elastic 'INFO Created worker host log file .*/job/host_worker_log$'
[ "$(cat host_worker)" = $'localhost\nlocalhost' ] || fail "host_worker: $(cat host_worker)"
[ -f host_worker_log ] && [ ! -s host_worker_log ] || fail "host_worker_log is not there, or not empty"
[[ $(readlink events.jsonl) == .dtlaunch/*/events.jsonl ]] || fail "events.jsonl is not the link it should be"
story=$(readlink events.jsonl)

run bad dtlaunch -n 1 -s 0 sh -c 'exit 5'
expect_status 5
[ "$(ls -A)" = .dtlaunch ] || fail "what an elastic job left is still there: $(ls -A)"
[ -s "$story" ] || fail "the elastic job's story is gone"
run killed dtlaunch -n 1 -s 0 sh -c 'kill -9 $$'
expect_status 137
run gone dtlaunch -n 1 -s 0 no-such-command
expect_status 127
expect_output gone 'no-such-command: not found on host localhost'
run quoted dtlaunch -n 1 -s 0 'echo a b'
expect_status 127
expect_output quoted 'write it without the quotes: echo a b'
run few with_files 60 dtlaunch -n 1 -s 0 true
expect_status 0
expect_output few 'a job of 1 host needs up to 68 open files, and the hard limit is 60: raise it'
run bytes dtlaunch -n 1 -s 0 --env X=$'\xe4' sh -c 'printf %s "$X" | od -An -tx1'
expect_status 0
expect_output bytes ' e4$'
# Closed descriptors are no reason to write into the next file's number.
timeout 30 dtlaunch -n 1 -s 0 touch "$T/touched" <&- >&- 2>&- || fail "with closed descriptors: exit $?"
[ -f "$T/touched" ] || fail "with closed descriptors the command did not run"
expect_nothing_left

say "a second job in the folder is refused and harms nothing; dtctl sees and stops the first"
launch sh -c 'echo up; exec sleep 1000'
says 'worker 1.* up'
first=$PID
run second dtlaunch -n 1 -s 0 true
expect_status 68
expect_output second 'is running in .*/job \(pid [0-9]+ on this host\)'
run status dtctl status
expect_status 0
expect_output status '^job .*: .*, up '
expect_output status '^1 .* localhost '
wait_for 5 '[ "$(dtctl logs 1 2>&1)" = up ]' || fail "dtctl logs 1: $(dtctl logs 1 2>&1)"
run stop dtctl stop
expect_status 0
expect_output stop 'ended with exit code 130: dtctl stop by '
finished dtlaunch "$first" 10
expect_status 130
run status dtctl status
expect_status 3
expect_nothing_left

say "Ctrl-C, twice for those who ignore TERM; children with sessions of their own go too"
launch sh -c 'setsid sleep 1000 & echo up; wait'
says 'worker 1.* up'
kill -INT "$PID"
finished dtlaunch "$PID" 10
expect_status 130
expect_output job 'the job was stopped: Ctrl-C$'
expect_nothing_left
launch sh -c 'trap "" TERM; echo up; exec sleep 1000'
says 'worker 1.* up'
kill -INT "$PID"
says 'Stopping the job'
STEP=0.3 nap  # how long the same order may come by another way, not a wait
kill -INT "$PID"
finished dtlaunch "$PID" 8
expect_status 130
expect_nothing_left

say "kill -9 of dtlaunch"
launch sh -c 'echo up; exec sleep 1000'
says 'worker 1.* up'
kill -9 "$PID"
expect_nothing_left 10

say "kill -9 of the supervisor: dtlaunch brings it back and nothing is restarted"
launch sh -c 'echo up; while [ ! -f go ]; do sleep 0.1; done; echo done'  # between two looks, not a wait
says 'worker 1.* up'
kill_supervisor
says 'starting it again, 1 of 5'
: >go
finished dtlaunch "$PID" 20
expect_status 0
[ "$(grep -c 'up$' "$T/job.out")" = 2 ] || fail "a worker was started again"
[ "$(grep -c 'done$' "$T/job.out")" = 2 ] || fail "not both workers ended"
rm go
expect_nothing_left

say "a detached job whose supervisor dies is taken up again on request"
run detached dtlaunch -n 1 -s 0 --detach sleep 1000
expect_status 0
worker_pid() { dtctl status --json | python3 -c 'import json, sys; print(*[w["pid"] for w in json.load(sys.stdin)["workers"]])'; }
wait_for 10 '[ "$(worker_pid)" -gt 0 ]' || fail "the detached job never began"
before=$(worker_pid)
kill_supervisor
run status dtctl status
expect_status 3
expect_output status 'dtctl resume'
# As under cron, sudo or a system unit: without the variable that determined the agent's folder.
run resume env -u XDG_RUNTIME_DIR dtctl resume
expect_status 0
expect_output resume 'it is back'
wait_for 10 '[ "$(worker_pid)" = "$before" ]' || fail "its worker was given up: $(dtctl status)"
alive "$before" || fail 'its worker is dead'
run status dtctl status
expect_status 0
kill_supervisor
run stop dtctl stop --force
expect_status 0
expect_nothing_left
