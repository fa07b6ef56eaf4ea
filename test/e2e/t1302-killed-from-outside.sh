# timeout=120 nightly
# The same on one machine with the user's kill, until restarts are used up: then the worker stays out, by
# name, and the job continues without it.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
train -n 2 --max-restarts 1 --
kill_worker() { kill -KILL "$(sed -nE '1s/.*"pid":([0-9]+).*/\1/p' "$T/w$1.jsonl")"; }
kill_worker 1
changed 'REMOVED localhost' 'ADDED localhost'
members 0,2
kill_worker 2
changed 'REMOVED localhost' 'ADDED localhost' 'REMOVED localhost' 'ADDED localhost'
members 0,3
kill_worker 3
happens host_given_up 'localhost is given up after 2 restart'
awaits .hosts.given_up=true '.hosts.why~signal 9'
some_epochs 2
worker_log once "$T/w0.jsonl"
worker_log waits "$T/w0.jsonl" 2
[ "$(wc -l <host_worker_log)" = 5 ] || fail "not five lines in host_worker_log"
end_job
