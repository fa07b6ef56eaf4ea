# timeout=120 sanitized
# A worker is killed with -9 in the middle of an epoch: the others continue without a new process and
# without repeating a step; it returns as a newcomer.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 3
train -n 3 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" -- --crash-at 3:9 --victim 1
changed "REMOVED ${SSH_ADDRESSES[1]}" "ADDED ${SSH_ADDRESSES[1]}"
happens shrunk 'epoch 3 goes on with workers 0, 2'
[ "$(event shrunk)" = 1 ] || fail "shrunk more than once"
happens worker_removed 'worker 1 .*signal 9'
members 0,2,3
some_epochs 2
for id in 0 2; do
  worker_log once "$T/w$id.jsonl"
  worker_log waits "$T/w$id.jsonl" 2
done
worker_log agree "$T"/w*.jsonl
end_job
# The members' waiting times, by cause, are in the console and in events.jsonl.
expect_output job 'goodput: [0-9.]+ % of [0-9]+ worker-seconds; lost: .*boundary [0-9.]+ s'
[ "$(event goodput '"boundary_s":[0-9.]+.*"goodput":0\.[0-9]+')" = 1 ] || fail "no event tells the goodput"
[ "$(event worker_removed '"member_s":[0-9.]+.*"rank":1')" = 1 ] || fail "no rank and time of the removed member"
