# timeout=120 cost=35
# Edits taken back within one epoch: of a newcomer that is ready already, and of a member. Nothing
# is committed, nothing logged; the newcomer is stopped, the member stays. An edit made before the
# first epoch counts.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
start job dtlaunch -n 1 --poll-interval 300ms --elastic-training-enabled "$DT_BIN/elastic_worker" \
  --log "$T/w%i.jsonl" --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20 \
  --victim 0 --warm-delay-s 2
JOB_PID=$PID
wait_for 20 '[ -s host_worker ]' || fail "no host_worker"
echo localhost >>host_worker
changed 'ADDED localhost'
members 0,1

# While a member is stopped no boundary is crossed: the following edits fall into one epoch, however long they take.
pid=$(pid_of workers 0)
kill -STOP "$pid"
echo localhost >>host_worker
happens worker_warm 'worker 2 '
sed -i '$d' host_worker
happens newcomer_stopped 'worker 2 .*no longer wanted'
kill -CONT "$pid"
some_epochs 1
kill -STOP "$pid"
before=$(event file_accepted)
sed -i '$d' host_worker
happens file_accepted . $((before + 1))
echo localhost >>host_worker
happens file_accepted . $((before + 2))
kill -CONT "$pid"
some_epochs 2
[ "$(event committed)" = 1 ] || fail "a commit for an edit that was taken back"
changed 'ADDED localhost'
members 0,1
worker_log once "$T/w0.jsonl"
worker_log once "$T/w1.jsonl"
end_job
