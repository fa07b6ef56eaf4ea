# A worker that is stopped in the middle of an epoch, its connections alive: named while the others
# wait for it, killed after --hang-timeout, and back as a newcomer. The others do no step twice.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 3
train -n 3 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --hang-timeout 8s -- --step-ms 100
victim=$(sed -nE '1s/.*"pid":([0-9]+).*/\1/p' "$T/w1.jsonl")
# In the middle: between two steps, or in one. At a boundary another timeout rules.
in_mid_epoch() { tail -n 1 "$T/w1.jsonl" | grep -Eq '"event":"step","step":([5-9]|10),'; }
wait_for 20 in_mid_epoch || fail "worker 1 does no steps"
kill -STOP "$victim"
shows 'any(w["id"] == 1 and w["stalls"] and re.search(r"stopped \(T\)", w["stalls"]["process"]) for w in s["workers"])'
happens worker_stalls "worker 1 .*last said epoch"
changed "REMOVED ${SSH_ADDRESSES[1]}" "ADDED ${SSH_ADDRESSES[1]}"
happens worker_hung "worker 1 .*last said epoch.*stopped \(T\)"
happens worker_removed "worker 1 .*hung for 8.0 s"
! _alive "$victim" || fail "worker 1 still is"
[ "$(event worker_hung)" = 1 ] || fail "others were taken for hung"
members 0,2,3
some_epochs 2
for id in 0 2; do worker_log once "$T/w$id.jsonl"; done
worker_log agree "$T"/w*.jsonl
end_job
