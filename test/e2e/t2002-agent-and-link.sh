# timeout=120 sanitized
# An agent is killed, an ssh connection is cut: no more is lost than must be.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 3
head -n 2 "$SSH_HOSTS" >"$T/hosts"
third=$(sed -n 3p "$SSH_HOSTS")
train -n 2 -H "$T/hosts" "${SSH_OPTIONS[@]}" --
job=$(dtctl status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["job"])')
echo "$third" >>host_worker
changed "ADDED ${third%:*}"
members 0,1,2

say "the ssh connection of worker 1's host is cut"
before="$(pids_of workers) $(pids_of servers)"
second=$(sed -n 2p "$T/hosts")
bridge=$(pgrep -f "dtagent --attach --job $job --host $second")
kill -KILL "$(ps -o ppid= -p "$bridge" | tr -d ' ')"
happens link_down "$second"
awaits "host $second up"
some_epochs 2
[ "$(pids_of workers) $(pids_of servers)" = "$before" ] || fail "something was restarted"
changed "ADDED ${third%:*}"

say "the third host's agent is killed"
worker=$(dtctl status --json | python3 -c 'import json, sys
print(*[w["pid"] for w in json.load(sys.stdin)["workers"] if w["id"] == 2])')
# The agent is the parent of its worker; its guard is another process.
kill -KILL "$(ps -o ppid= -p "$worker" | tr -d ' ')"
wait_for 1 "! alive $worker" || fail "the killed agent's worker is alive after 1 s"
changed "ADDED ${third%:*}" "REMOVED ${third%:*}" "ADDED ${third%:*}"
members 0,1,3
some_epochs 2

say "its next agent and the guard are killed at once: nobody is left there to end anything"
worker=$(dtctl status --json | python3 -c 'import json, sys
print(*[w["pid"] for w in json.load(sys.stdin)["workers"] if w["id"] == 3])')
setsid env "$(tr '\0' '\n' <"/proc/$worker/environ" | grep ^DT_MARK=)" sleep 777 &
grandchild=$!
agent=$(ps -o ppid= -p "$worker" | tr -d ' ')
guard=$(ps -o ppid= -p "$agent" | tr -d ' ')
grep -q '^Name:.*dtagent-guard' "/proc/$guard/status" || fail "process $guard is no guard: $(ps -fp "$guard")"
kill -KILL "$guard" "$agent"
wait_for 1 "! alive $worker && ! alive $grandchild" || fail "something is left: $(ps -fp "$worker,$grandchild")"
changed "ADDED ${third%:*}" "REMOVED ${third%:*}" "ADDED ${third%:*}" "REMOVED ${third%:*}" "ADDED ${third%:*}"
members 0,1,4
worker_log once "$T/w0.jsonl"
end_job
