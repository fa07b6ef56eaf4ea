# timeout=120
# A worker that is stopped in the middle of an epoch, its connections alive: named while the others
# wait for it, killed after --hang-timeout, and back as a newcomer. The others do no step twice.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 3
train -n 3 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --hang-timeout 8s -- --victim 1 --stop-at 3:7
victim=$(sed -nE '1s/.*"pid":([0-9]+).*/\1/p' "$T/w1.jsonl")
# In the middle of an epoch: at a boundary another timeout rules.
awaits '.workers[id=1].stalls.process~stopped \(T\)'
happens worker_stalls "worker 1 .*last said epoch"
changed "REMOVED ${SSH_ADDRESSES[1]}" "ADDED ${SSH_ADDRESSES[1]}"
happens worker_hung "worker 1 .*last said epoch.*stopped \(T\)"
happens worker_removed "worker 1 .*hung for 8.0 s"
! alive "$victim" || fail "worker 1 still is"
[ "$(event worker_hung)" = 1 ] || fail "others were taken for hung"
members 0,2,3
some_epochs 2
for id in 0 2; do worker_log once "$T/w$id.jsonl"; done
worker_log agree "$T"/w*.jsonl
end_job
