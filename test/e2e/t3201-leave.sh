# timeout=240 cost=60
# Hosts go away by notice: a newcomer and a base worker leave at the boundary while the others train on, also when
# the supervisor dies in between; a cancelled notice leaves no trace; with the last host the job ends with 75.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 3
head -n 2 "$SSH_HOSTS" >"$T/two"
train -n 2 -s 1 -H "$T/two" "${SSH_OPTIONS[@]}" --notice-margin 1s -- --steps-per-epoch 200
mapfile -t hosts < <(cut -d' ' -f1 "$SSH_HOSTS")
name() { local host=${hosts[$1]#*@}; printf '%s' "${host%:*}"; }
cat "$SSH_HOSTS" >host_worker
changed "ADDED $(name 2)"
members 0,1,2

say "refused"
run stranger dtctl leave 10.9.9.9 --in 5
expect_status 1
expect_output stranger '10.9.9.9 has no worker and no server of this job'

say "cancelled"
some_epochs 1  # the whole of an epoch lies ahead
dtctl leave "${hosts[2]}" --why 'kernel update' >"$T/leave.out"
expect_output leave 'will leave at the next epoch'
run again dtctl add "${hosts[2]}"
expect_status 1
expect_output again 'is leaving \(kernel update\)'
dtctl leave "${hosts[2]}" --cancel >"$T/cancel.out"
some_epochs 1
members 0,1,2
changed "ADDED $(name 2)"

say "a newcomer's host"
some_epochs 1
from=$(($(epoch) + 1))
dtctl leave "${hosts[2]}" --in 1m --why 'spot reclaim' >"$T/leave.out"
dtctl why "${hosts[2]}" >"$T/why.out"
expect_output why 'LEAVING: it goes away in (1 min 00|5[0-9]) s, its worker will leave at the next epoch(, in about [0-9]+ s)? \(spot reclaim\)'
changed "ADDED $(name 2)" "REMOVED $(name 2)"
happens worker_removed 'notice: spot reclaim'
happens host_left
worker_log left "$T/w2.jsonl"
members 0,1
for id in 0 1; do worker_log waits "$T/w$id.jsonl" 2 "$from"; done
[ "$(event worker_died)" = 0 ] || fail "a leave counts as a death"

say "and back"
dtctl add "${hosts[2]}" >"$T/add.out"
changed "ADDED $(name 2)" "REMOVED $(name 2)" "ADDED $(name 2)"
members 0,1,3

say "a base host, and the supervisor dies before the boundary"
some_epochs 1
dtctl leave "${hosts[1]}" --in 1m --why 'spot reclaim' >"$T/leave.out"
kill -KILL "$(supervisor)"
awaits term=2
changed "ADDED $(name 2)" "REMOVED $(name 2)" "ADDED $(name 2)" "REMOVED $(name 1)"
members 0,3
some_epochs 1
worker_log left "$T/w1.jsonl"
worker_log once "$T/w0.jsonl"

say "too late for the boundary, and then the last host"
dtctl leave "${hosts[2]}" --in 1.2 --why 'power' >"$T/leave.out"
happens worker_sent_away
PATIENCE=10 changed "ADDED $(name 2)" "REMOVED $(name 2)" "ADDED $(name 2)" "REMOVED $(name 1)" "REMOVED $(name 2)"
some_epochs 1
[ "$(event worker_died)" = 0 ] || fail "a leave counts as a death"
dtctl leave "${hosts[0]}" --in 3 --why 'power' >"$T/leave.out"
finished dtlaunch "$JOB_PID" 20
expect_status 75
expect_output job 'every host goes away.*\(power\): start the job again'
expect_nothing_left
