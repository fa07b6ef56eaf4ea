# timeout=180
# A host falls silent, its processes stopped and its connections unbroken: suspect, then lost 3 s
# after its last message. When it comes back, its processes are stopped, and it joins again.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 3
head -n 2 "$SSH_HOSTS" >"$T/hosts"
third=$(sed -n 3p "$SSH_HOSTS")
train -n 2 -H "$T/hosts" "${SSH_OPTIONS[@]}" --
echo "$third" >>host_worker
changed "ADDED ${third%:*}"
members 0,1,2
life() { awaits "host $third $1"; }
life alive

say "the third host is stopped: its worker and its agent"
worker=$(dtctl status --json | python3 -c 'import json, sys
print(*[w["pid"] for w in json.load(sys.stdin)["workers"] if w["id"] == 2])')
agent=$(ps -o ppid= -p "$worker" | tr -d ' ')
stopped=$(date +%s%N)
kill -STOP "$worker" "$agent"
life suspect  # for 2 s: looked for first
happens host_suspect "$third"
PATIENCE=10 happens host_lost "$third"
changed "ADDED ${third%:*}" "REMOVED ${third%:*}"
lost=$(tail -n 1 host_worker_log | cut -d' ' -f4)
took=$(((lost - stopped) / 1000000))
say "lost after $took ms"
[ $took -ge 2500 ] || fail "lost after $took ms"
[ $took -le 5000 ] || fail "lost after $took ms"
members 0,1
some_epochs 2

say "it comes back"
kill -CONT "$worker" "$agent"
wait_for 10 "! alive $worker" || fail "worker 2 still runs"
wait_for 10 "! alive $agent" || fail "its agent still runs"
PATIENCE=60 changed "ADDED ${third%:*}" "REMOVED ${third%:*}" "ADDED ${third%:*}"
life alive
some_epochs 2
for id in 0 1; do worker_log once "$T/w$id.jsonl"; done

say "the supervisor is stopped for longer than that: nobody is lost"
supervisor=$(supervisor)
kill -STOP "$supervisor"
sleep 5  # how long it is stopped, not a wait: more than --dead-after
kill -CONT "$supervisor"
some_epochs 3
[ "$(event host_lost)" = 1 ] || fail "a host was lost by that"
end_job
