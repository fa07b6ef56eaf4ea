# timeout=180 cost=55
# A stopped worker is distinguished from one that computes, also if no other worker waits for it: the
# only worker, and dist_async.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
victim() { sed -nE '1s/.*"pid":([0-9]+).*/\1/p' "$T/w$1.jsonl"; }

say "the only worker"
train -n 1 --hang-timeout 10s -- --victim 0 --stop-at 3:7
awaits '.workers[id=0].stalls.process~stopped \(T\)' '.workers[id=0].stalls.waited_for=false'
changed 'REMOVED localhost' 'ADDED localhost'
happens worker_stalls 'worker 0 .*gives no sign of life'
happens worker_hung 'worker 0 .*stopped \(T\)'
wait_for 5 '! alive "$(victim 0)"' || fail "worker 0 still is"
members 1
some_epochs 2 1
end_job

say "the only worker computes for long: that is no hang"
rm -f "$T"/w*.jsonl
train -n 1 --hang-timeout 4s -- --steps-per-epoch 1 --step-ms 6000
some_epochs 2
[ "$(event worker_stalls)" = 0 ] || fail "it was taken for hung"
end_job

say "dist_async"
rm -f "$T"/w*.jsonl
train -n 2 --hang-timeout 6s -- --victim 1 --stop-at 3:7 --kv-type dist_async
changed 'REMOVED localhost' 'ADDED localhost'
happens worker_hung 'worker 1 .*stopped \(T\)'
members 0,2
some_epochs 2
worker_log once "$T/w0.jsonl"
end_job
