# timeout=240 cost=25
# Many edits and deaths at random moments: in the end the job matches the file, the log is consistent,
# and at the end of every epoch all workers held the same weights, bit for bit.
# DT_E2E_CHANGES=200 makes more changes, DT_E2E_SEED other ones.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
RANDOM=${DT_E2E_SEED:-1}
ssh_hosts 4
mapfile -t host <"$SSH_HOSTS"
train -n 2 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --max-restarts 100 --
kill_someone() {  # not worker 0
  local pids
  read -ra pids < <(dtctl status --json | python3 -c 'import json, sys
print(*(w["pid"] for w in json.load(sys.stdin)["workers"] if w["pid"] > 0 and w["id"] != 0))')
  [ ${#pids[@]} = 0 ] || kill -KILL "${pids[RANDOM % ${#pids[@]}]}" 2>/dev/null || true
}
for ((i = 0; i < ${DT_E2E_CHANGES:-25}; i++)); do
  case $((RANDOM % 5)) in
    0) echo "${host[RANDOM % 4]}" >>host_worker ;;
    1) sed -i "$((RANDOM % 3 + 2))d" host_worker ;;
    2) sed -i '$d' host_worker ;;
    3) printf '%s\n' "${host[@]}" >host_worker ;;
    4) kill_someone ;;
  esac
  sleep 0.$((RANDOM % 10))  # how long between two changes, not a wait
done
everyone() { PATIENCE=90 awaits ".workers.length=$1" "workers=$1" '.workers[state!=MEMBER].length=0'; }
printf '%s\n' "${host[@]}" >host_worker
everyone 4
printf '%s\n' "${host[@]:0:2}" >host_worker
everyone 2
some_epochs 2
wait_for 10 '[ "$(grep -c ADDED host_worker_log)" = "$(grep -c REMOVED host_worker_log)" ]' ||
  fail "host_worker_log does not add up"
[ "$(cut -d' ' -f1 host_worker_log)" = "$(seq 0 $(($(wc -l <host_worker_log) - 1)))" ] || fail "a gap in host_worker_log"
worker_log once "$T/w0.jsonl"
worker_log waits "$T/w0.jsonl" 2
worker_log agree "$T"/w*.jsonl
end_job
