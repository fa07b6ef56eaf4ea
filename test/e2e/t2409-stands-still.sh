# A worker whose process stands still is told apart from one that computes, also where nobody waits
# for it: the only worker, and dist_async.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
victim() { sed -nE '1s/.*"pid":([0-9]+).*/\1/p' "$T/w$1.jsonl"; }
in_mid_epoch() { tail -n 1 "$T/w$1.jsonl" | grep -Eq '"event":"step","step":([5-9]|10),'; }

say "the only worker"
train -n 1 --hang-timeout 10s -- --step-ms 100
wait_for 20 'in_mid_epoch 0' || fail "worker 0 does no steps"
kill -STOP "$(victim 0)"
shows 'any(w["id"] == 0 and w["stalls"] and not w["stalls"]["waited_for"] and re.search(r"stopped \(T\)", w["stalls"]["process"]) for w in s["workers"])'
changed 'REMOVED localhost' 'ADDED localhost'
happens worker_stalls 'worker 0 .*gives no sign of life'
happens worker_hung 'worker 0 .*stopped \(T\)'
wait_for 5 '! _alive "$(victim 0)"' || fail "worker 0 still is"
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
train -n 2 --hang-timeout 6s -- --step-ms 100 --kv-type dist_async
wait_for 20 'in_mid_epoch 1' || fail "worker 1 does no steps"
kill -STOP "$(victim 1)"
changed 'REMOVED localhost' 'ADDED localhost'
happens worker_hung 'worker 1 .*stopped \(T\)'
members 0,2
some_epochs 2
worker_log once "$T/w0.jsonl"
end_job
