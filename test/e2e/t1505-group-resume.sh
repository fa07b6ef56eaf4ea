# timeout=180 cost=6
# dtlaunch --resume with --on-change restart: a group that lives is taken over, where nothing lives another one begins, and
# so does the command of a job that ended badly.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
cat >worker <<'END'
#!/bin/bash
echo "group $TORCHELASTIC_RESTART_COUNT rank $RANK of $WORLD_SIZE" >>"$T/starts"
trap 'while [ -e hold ]; do sleep 0.1; done; exit 0' TERM  # between two looks, not a wait
until [ -e finish ]; do
  [ ! -e fail ] || exit 7
  sleep 0.1 &  # between two looks, not a wait
  wait $!
done
END
chmod +x worker
export T
# began GROUP RANK WORLD N: waits until that worker has begun, as the Nth of all.
began() {
  wait_for 20 "grep -qx 'group $1 rank $2 of $3' '$T/starts' && [ \$(wc -l <'$T/starts') = $4 ]" || fail "starts: $(cat "$T/starts")"
}
# ends_alone NAME PID: dtlaunch and its supervisor are killed, so that neither stops the job.
ends_alone() {
  local pid
  pid=$(supervisor)
  kill -STOP "$pid"
  kill -KILL "$2" "$pid"
  finished "$1" "$2" 10
}

start job dtlaunch -n 2 --elastic-training-enabled --on-change restart --change-settle 200ms --max-restarts 1 ./worker
job=$PID
awaits --start state=running
began 0 1 2 2

say 'taken over: nothing restarts, and an edit still does'
ends_alone job "$job"
start second dtlaunch --resume .
second=$PID
awaits 'term>=2' state=running .group_restarts=0
dtctl add localhost
awaits state=running workers=3 .group_restarts=1
began 1 2 3 5

say 'taken over in the middle of a restart'
touch hold
dtctl remove localhost
awaits 'event group_stops ~ fewer'
ends_alone second "$second"
start third dtlaunch --resume .
third=$PID
awaits 'term>=3' state=starting
rm hold
awaits state=running workers=2 .group_restarts=2
began 2 1 2 7

say 'nothing lives any more: a group begins'
agent=$(ps -o ppid= -p "$(pid_of workers 0)")
ends_alone third "$third"
kill -KILL $agent
expect_nothing_left
start fourth dtlaunch --resume .
fourth=$PID
awaits 'term>=4' state=running workers=2 .group_restarts=3
began 3 1 2 9

say 'it ends badly, and its command begins again'
touch fail
finished fourth "$fourth" 20
expect_status 70
rm fail
start fifth dtlaunch --resume .
fifth=$PID
began 0 1 2 11
expect_output fifth "The command begins again, with its own snapshot"
touch finish
finished fifth "$fifth" 20
expect_status 0
run sixth dtlaunch --resume .
expect_status 0
expect_output sixth 'has finished'
expect_nothing_left
