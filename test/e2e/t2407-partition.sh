# timeout=400 cost=25
# A host is cut off, both ways or one way, or vanishes silently: dead after --dead-after, the
# survivors continue without repeating a step; when it is back, its processes are stopped and change
# nothing, and it joins again.
. "$(dirname "$0")/netns.sh" && own_network "$@"
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
net_hosts 3
head -n 2 "$SSH_HOSTS" >"$T/hosts"
third=$(sed -n 3p "$SSH_HOSTS")
log=()
PATIENCE=100 train -n 2 -H "$T/hosts" "${SSH_OPTIONS[@]}" --transport tcp --max-restarts 20 --
echo "$third" >>host_worker
log+=("ADDED ${third%:*}")
PATIENCE=60 changed "${log[@]}"
id=2
members 0,1,$id
pid_of() { dtctl status --json | python3 -c 'import json, sys
print(*[w["pid"] for w in json.load(sys.stdin)["workers"] if w["id"] == int(sys.argv[1])])' "$1"; }
now_ns() { date +%s%N; }

# lost HOW FROM MS: waits until host 3, cut off since FROM, is declared lost, within MS; prints how soon,
# and how long the survivors waited.
lost() {
  local how=$1 from=$2 took
  log+=("REMOVED ${third%:*}")
  PATIENCE=30 changed "${log[@]}"
  took=$((($(tail -n 1 host_worker_log | cut -d' ' -f4) - from) / 1000000))
  members 0,1
  some_epochs 2
  python3 - "$T/w0.jsonl" "$how" "$took" "$from" <<'END'
import json, sys, time
since = int(sys.argv[4]) - time.time_ns() + time.monotonic_ns()
steps = [line["t_ns"] for line in map(json.loads, open(sys.argv[1])) if line["event"] == "step"]
gap = max(b - a for a, b in zip(steps, steps[1:]) if b > since)
print(f"-- {sys.argv[2]}: lost after {sys.argv[3]} ms, the survivors stood still for {gap / 1e9:.2f} s", flush=True)
END
  [ "$took" -ge 2500 ] || fail "lost after $took ms"
  [ "$took" -le "$3" ] || fail "lost after $took ms"
}
# back WORKER: the old WORKER is stopped, a new one joins.
back() {
  local old=$1
  heal
  [ -z "$old" ] || wait_for 30 "! alive $old" || fail "the old worker still runs"
  id=$((id + 1))
  log+=("ADDED ${third%:*}")
  PATIENCE=60 changed "${log[@]}"
  members 0,1,$id
  some_epochs 2
}

for round in $(seq "${DT_E2E_ROUNDS:-1}"); do
  say "cut both ways"
  old=$(pid_of $id)
  from=$(now_ns)
  cut_host 3
  lost "cut both ways" "$from" 6000
  alive "$old" || fail "the worker behind the cut has ended: nothing is there to be fenced"
  kill -STOP "$old"  # it cannot end by itself because the servers refuse it
  back "$old"
  cuts=$((${cuts:-0} + 1))
  is_nightly || continue

  say "nothing comes from it"
  old=$(pid_of $id)
  from=$(now_ns)
  cut_host 3 from
  lost "cut from the host" "$from" 6000
  back "$old"

  say "nothing reaches it"
  old=$(pid_of $id)
  from=$(now_ns)
  cut_host 3 to
  # Its messages still arrive, until TCP's send window is full without acknowledgements.
  lost "cut to the host" "$from" 15000
  back "$old"

  say "it vanishes: no connection is closed, and it comes back empty"
  from=$(now_ns)
  cut_host 3
  vanish 3
  lost "vanished" "$from" 6000
  sshd_of 3
  back ""
  cuts=$((cuts + 3))
done
for id in 0 1; do worker_log once "$T/w$id.jsonl"; done
worker_log agree "$T"/w*.jsonl
[ "$(event host_lost)" = $cuts ] || fail "others were lost as well"
end_job
