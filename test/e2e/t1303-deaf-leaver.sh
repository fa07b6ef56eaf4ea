# timeout=120
# A worker ignores the request to leave and TERM: the others are not disturbed, it is stopped after
# --leave-timeout and logged REMOVED.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
train -n 1 --leave-timeout 2s --stop-timeout 1s -- --ignore-leave --victim 1
echo localhost >>host_worker
changed 'ADDED localhost'
pid=$(sed -nE '1s/.*"pid":([0-9]+).*/\1/p' "$T/w1.jsonl")
echo localhost >host_worker
awaits 'worker 1 leaving'
some_epochs 2
happens leave_enforced 'worker 1 '
changed 'ADDED localhost' 'REMOVED localhost'
! alive "$pid" || fail "worker 1 still runs"
worker_log left "$T/w1.jsonl"
worker_log once "$T/w0.jsonl"
worker_log waits "$T/w0.jsonl" 2
end_job
