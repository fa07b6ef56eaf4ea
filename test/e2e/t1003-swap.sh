# timeout=120
# One edit swaps an added host for another: one commit, each log line once. An edit taken back
# before its newcomer joined: no commit, no log line, the newcomer stopped.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 3
train -n 1 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" -- --victim 3 --warm-delay-s 600
mapfile -t host <"$SSH_HOSTS"
echo "${host[1]}" >>host_worker
changed "ADDED ${SSH_ADDRESSES[1]}"
happens committed 'worker 1 \(.*\) has joined'
before=$(event committed)
sed -i "2s/.*/${host[2]}/" host_worker
changed "ADDED ${SSH_ADDRESSES[1]}" "ADDED ${SSH_ADDRESSES[2]}" "REMOVED ${SSH_ADDRESSES[1]}"
happens committed 'worker 2 \(.*\) has joined, worker 1 \(.*\) has left'
[ "$(event committed)" = $((before + 1)) ] || fail "not one commit"
members 0,2

# Worker 3 warms up forever: it is stopped while it is still a newcomer.
before=$(event committed)
cp host_worker good
echo "${host[1]}" >>host_worker
awaits '.workers[id=3,state=STARTING].pid>0'
wait_for 10 '[ -s "$T/w3.jsonl" ]' || fail "worker 3 has not begun"
pid=$(sed -nE '1s/.*"pid":([0-9]+).*/\1/p' "$T/w3.jsonl")
alive "$pid" || fail "worker 3 does not run"
cp good host_worker
happens newcomer_stopped 'worker 3 .*no longer wanted'
wait_for 15 '! alive "$pid"' || fail "worker 3 has not been stopped"
awaits .workers.length=2 .log_lines=3
some_epochs 3
[ "$(event committed)" = "$before" ] || fail "a commit for an edit that was taken back"
[ "$(wc -l <host_worker_log)" = 3 ] || fail "a line in host_worker_log for an edit that was taken back"
worker_log once "$T/w0.jsonl"
worker_log waits "$T/w0.jsonl" 2
end_job
