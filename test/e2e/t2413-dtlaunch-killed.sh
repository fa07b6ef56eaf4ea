# timeout=120 cost=25
# dtlaunch is killed or stopped while the job has no supervisor. A job whose dtlaunch was killed stops
# also while its next supervisor is still starting; after dtctl resume, a dtlaunch that continues is
# connected to its job again.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
pointer() { python3 -c 'import json, sys; print(json.load(open(".dtlaunch/current.json"))[sys.argv[1]])' "$1"; }

say "killed while the supervisor that it has started again waits for the journal"
train -n 1 --
start holder flock -o "$(pointer state_dir)/journal" sleep 100
holder=$PID
supervisor=$(pointer pid)
wait_for 5 "grep -q -- '-> FLOCK .*:$(stat -c %i "$(pointer state_dir)/journal") ' /proc/locks" || fail "the journal is not waited for"
kill -KILL "$supervisor"
wait_for 10 "pgrep -P $JOB_PID dtsupervisor | grep -qvx $supervisor" || fail "dtlaunch does not start it again"
kill -KILL "$JOB_PID"
finished dtlaunch "$JOB_PID" 5
kill -- "-$holder"
expect_nothing_left 20
grep -q '"exit_code":130' .dtlaunch/current.json || fail "it was not stopped: $(cat .dtlaunch/current.json)"

say "dtctl resume was there before it"
mkdir "$T/second"
cd "$T/second"
JOB=$PWD
rm -f "$T"/w*.jsonl
train -n 1 --
kill -STOP "$JOB_PID"
kill -KILL "$(pointer pid)"
run resume dtctl resume
expect_status 0
kill -CONT "$JOB_PID"
wait_for 10 "grep -q 'starting it again' '$T/job.out'" || fail "dtlaunch has noticed nothing"
wait_for 20 "! pgrep -P $JOB_PID dtsupervisor >/dev/null" || fail "there are two supervisors"
some_epochs 2
alive "$JOB_PID" || fail "dtlaunch has given the job up: $(output job)"
awaits term=2 state=running
end_job
expect_status 130
