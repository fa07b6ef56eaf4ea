# timeout=120
# Two jobs of one user on the same hosts: stopping one never touches the other.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 2
mkdir "$T/other"
train -n 2 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --
start other dtlaunch -n 2 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --job-dir "$T/other" "$DT_BIN/elastic_worker" \
  --log "$T/other/w%i.jsonl" --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20
OTHER=$PID
wait_for 30 'grep -qs "\"epoch\":1" "$T/other/w1.jsonl"' || fail "the other job has not begun"
kill -KILL "$OTHER"
finished other "$OTHER" 5
wait_for 15 '! left_over | grep -q "$T/other"' || fail "left over of the killed job: $(left_over | grep "$T/other")"
some_epochs 3
worker_log once "$T/w0.jsonl"
worker_log once "$T/w1.jsonl"
[ "$(event link_down)$(event worker_died)" = 00 ] || fail "the first job was touched"
end_job
