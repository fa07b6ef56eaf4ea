# timeout=400 cost=55
# Links that are bad without being dead: only the supervisor's is cut while data flows (unsupervised:
# trains to the boundary), the supervisor is cut off from all hosts (commits nothing), packets are
# lost and late (no host is taken for dead).
. "$(dirname "$0")/netns.sh" && own_network "$@"
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
net_hosts 3
head -n 2 "$SSH_HOSTS" >"$T/hosts"
third=$(sed -n 3p "$SSH_HOSTS")
# Epochs of 8 s: long enough to observe training in the middle of one.
PATIENCE=100 train -n 2 -H "$T/hosts" "${SSH_OPTIONS[@]}" --transport tcp --max-restarts 20 -- --steps-per-epoch 80 --step-ms 100
echo "$third" >>host_worker
PATIENCE=60 changed "ADDED ${third%:*}"
members 0,1,2
pid_of() { dtctl status --json | python3 -c 'import json, sys
print(*[w["pid"] for w in json.load(sys.stdin)["workers"] if w["id"] == int(sys.argv[1])])' "$1"; }
steps_of() { grep -c '"event":"step"' "$T/w$1.jsonl"; }
begins_an_epoch() {
  local n
  n=$(epoch)
  wait_for 30 "[ \"\$(epoch)\" -gt $n ]" || fail "training does not go on"
}
pids() { for id in "$@"; do pid_of "$id"; done; }

say "host 3 cannot be reached by the supervisor, but its data flows: it trains on to the boundary"
begins_an_epoch
old=$(pid_of 2)
cut_host 3 from fib daddr type local
cut_host 3 to fib saddr type local
PATIENCE=40 happens link_down "$third"
say "at the boundary it is out"
PATIENCE=30 changed "ADDED ${third%:*}" "REMOVED ${third%:*}"
happens host_lost "$third is lost: unsupervised, and out at this boundary"
tail -n 5 "$T/w2.jsonl" | grep -Eq '"event":"step","step":79[,}]' || fail "worker 2 did not train to the end of the epoch: $(tail -n 1 "$T/w2.jsonl")"
members 0,1
some_epochs 1
heal
wait_for 30 "! alive $old" || fail "the old worker still runs"
PATIENCE=60 changed "ADDED ${third%:*}" "REMOVED ${third%:*}" "ADDED ${third%:*}"
members 0,1,3
if ! is_nightly; then
  end_job
  exit
fi

say "the supervisor is cut off from every host: it commits nothing, nobody is lost, nobody restarted"
begins_an_epoch
before=$(pids 0 1 3)
boundaries=$(grep -c boundary_enter "$T/w3.jsonl")
cut_supervisor_off() {
  local k
  for k in "$@"; do
    cut_host "$k" from fib daddr type local
    cut_host "$k" to fib saddr type local
  done
}
cut_supervisor_off 1 2 3
wait_for 30 "[ \$(grep -c boundary_enter '$T/w3.jsonl') -gt $boundaries ]" || fail "training stood still"
sleep 4  # how long the cut lasts, not a wait: more than --dead-after
[ "$(event host_lost)" = 1 ] || fail "hosts were lost"
say "one host is reached again before the others: those have time to follow"
heal
cut_supervisor_off 2 3
awaits "host $(sed -n 1p "$T/hosts") up"
sleep 4  # as above, not a wait
[ "$(event host_lost)" = 1 ] || fail "hosts were lost"
heal
begins_an_epoch
[ "$(pids 0 1 3)" = "$before" ] || fail "somebody was restarted: $before, now $(pids 0 1 3)"
changed "ADDED ${third%:*}" "REMOVED ${third%:*}" "ADDED ${third%:*}"
[ "$(event host_lost)" = 1 ] || fail "hosts were lost"

say "10 % of all packets to and from host 3 are lost, and 1 Mbit/s is all it gets"
cut_host 3 both numgen random mod 100 '<' 10
tc qdisc add dev host3 root tbf rate 1mbit burst 20kb latency 1s
steps=$(steps_of 0)
sleep 10  # how long the link is bad, not a wait
[ "$(event host_lost)" = 1 ] || fail "a host was lost by that"
say "$(($(steps_of 0) - steps)) steps of worker 0 in 10 s"
tc qdisc del dev host3 root
heal
begins_an_epoch
[ "$(pids 0 1 3)" = "$before" ] || fail "somebody was restarted"
for id in 0 1; do worker_log once "$T/w$id.jsonl"; done
worker_log agree "$T"/w*.jsonl
end_job
