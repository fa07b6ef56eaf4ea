# timeout=180 cost=25
# The same over ssh, host by host; a removed worker ends by itself with exit code 0;
# a host of the initial launch stays.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
new_hosts 3
train -n 1 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --
mapfile -t host <"$SSH_HOSTS"
echo "${host[1]}" >>host_worker
changed "ADDED ${SSH_ADDRESSES[1]}"
echo "${host[2]}" >>host_worker
changed "ADDED ${SSH_ADDRESSES[1]}" "ADDED ${SSH_ADDRESSES[2]}"
members 0,1,2
some_epochs 2
sed -i 2d host_worker
changed "ADDED ${SSH_ADDRESSES[1]}" "ADDED ${SSH_ADDRESSES[2]}" "REMOVED ${SSH_ADDRESSES[1]}"
members 0,2
happens worker_removed 'worker 1 .*\(exit code 0\)'
[ "$(event worker_removed)" = 1 ] || fail "removed more than once"
worker_log left "$T/w1.jsonl"
wait_for 5 "tail -n 1 .dtlaunch/*/logs/worker-1.log | grep -q 'released; done'" || fail "worker 1 did not end by itself"
echo "${host[0]}" >host_worker
changed "ADDED ${SSH_ADDRESSES[1]}" "ADDED ${SSH_ADDRESSES[2]}" "REMOVED ${SSH_ADDRESSES[1]}" "REMOVED ${SSH_ADDRESSES[2]}"
members 0
some_epochs 2

# A base host stays whatever the file contains.
echo "${host[1]}" >host_worker
happens base_host_kept "${SSH_ADDRESSES[0]}.* is a host of the initial launch"
awaits ".file.kept=${host[0]}"
changed "ADDED ${SSH_ADDRESSES[1]}" "ADDED ${SSH_ADDRESSES[2]}" "REMOVED ${SSH_ADDRESSES[1]}" "REMOVED ${SSH_ADDRESSES[2]}" "ADDED ${SSH_ADDRESSES[1]}"
members 0,3
some_epochs 1
worker_log once "$T/w0.jsonl"
worker_log waits "$T/w0.jsonl" 2
end_job
