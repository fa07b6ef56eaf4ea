# Edits taken back within one epoch: of a newcomer that is ready already, and of a member. Nothing
# is committed, nothing logged; the newcomer is stopped, the member stays. An edit made before the
# first epoch counts.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
start job dtlaunch -n 1 --poll-interval 300ms --elastic-training-enabled "$DT_BIN/mlp_worker" \
  --log "$T/w%i.jsonl" --samples 200 --epochs 1000 --steps-per-epoch 20 --step-ms 500 \
  --victim 0 --warm-delay-s 2
JOB_PID=$PID
wait_for 10 '[ -s host_worker ]' || fail "no host_worker"
echo localhost >>host_worker
changed 'ADDED localhost'
members 0,1

# An epoch lasts 10 s; what follows begins with one.
next_epoch() { next=$(($(epoch) + 1)) && wait_for 20 "in_epoch $next"; }
next_epoch
echo localhost >>host_worker
happens worker_warm 'worker 2 '
sed -i '$d' host_worker
happens newcomer_stopped 'worker 2 .*no longer wanted'
in_epoch $((next + 1)) && fail "too slow a machine for this test"
next_epoch
before=$(event file_accepted)
sed -i '$d' host_worker
happens file_accepted . $((before + 1))
echo localhost >>host_worker
happens file_accepted . $((before + 2))
in_epoch $((next + 1)) && fail "too slow a machine for this test"
some_epochs 1
[ "$(event committed)" = 1 ] || fail "a commit for an edit that was taken back"
changed 'ADDED localhost'
members 0,1
worker_log once "$T/w0.jsonl"
worker_log once "$T/w1.jsonl"
end_job
