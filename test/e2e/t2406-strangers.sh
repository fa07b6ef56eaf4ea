# timeout=180 sanitized
# Port scanners, garbage, replays, an old worker, floods and lengths of 4 GiB on everything that
# listens: nothing changes, memory stays, and it is counted.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
train -n 2 -s 1 --
value() { dtctl status --json | python3 -c 'import json, sys
s = json.load(sys.stdin)
print(eval(sys.argv[1]))' "$1"; }
of_process() { tr '\0' '\n' <"/proc/$1/environ" | sed -n "s/^$2=//p"; }
stranger() { python3 "$DT_SOURCE/test/e2e/strangers.py" "$@"; }

say "worker 1 is killed: its id is an old worker's from then on"
kill -KILL "$(value 's["workers"][1]["pid"]')"
changed 'REMOVED localhost' 'ADDED localhost'
members 0,2
worker=$(value 's["workers"][0]["pid"]')
server=$(value 's["servers"][0]["pid"]')
agent=$(ps -o ppid= -p "$worker" | tr -d ' ')
supervisor=$(supervisor)
control=$(python3 -c 'import json; print(json.load(open(".dtlaunch/current.json"))["socket"])')
agent_socket=$(of_process "$worker" DT_AGENT_SOCKET)
rss() { awk '/VmRSS/ { print $2 }' "/proc/$1/status"; }
the_state() { value '(s["generation"], s["term"], s["log_lines"], sorted((w["id"], w["pid"]) for w in s["workers"]))'; }
before=$(the_state)
memory_before=$(for pid in "$server" "$agent" "$supervisor"; do rss "$pid"; done)

# counted LISTENER REFUSED DROPPED FENCED: waits until at least these numbers are counted and shown to people.
counted() {
  local kept
  kept="[k for k in s[\"kept_out\"] if k[\"by\"] == \"$1\" and k[\"refused\"] >= $2 and k[\"dropped\"] >= $3 and k[\"fenced\"] >= $4]"
  shows "len($kept) == 1"
  dtctl status >"$T/text.out"
  expect_output text "^$1 kept out: [0-9]+ connections of strangers"
}
# visited LISTENER COMMAND...: strangers connect, all of them are counted; training continues.
visited() {
  local name=$1 refused dropped fenced
  shift
  say "$name"
  stranger "$@" >"$T/visit.out" 2>&1 || fail "$(output visit)"
  output visit
  read -r _ refused _ dropped _ fenced <"$T/visit.out"
  counted "$name" "$refused" "$dropped" "$fenced"
}
epoch_before=$(epoch)
visited 'server 0' server "$(value 's["servers"][0]["port"]')" "$(of_process "$worker" DT_SECRET)" 1 1000000
visited 'agent of localhost' agent "$agent_socket"
visited 'control socket' control "$control"
stranger closed "$(of_process "$worker" DMLC_PS_ROOT_PORT)" "$(of_process "$worker" MASTER_PORT)" >/dev/null || fail 'a reserved port'

[ "$(the_state)" = "$before" ] || fail "something changed: was $before, is $(the_state)"
some_epochs 2
[ "$(epoch)" -gt $((epoch_before + 10)) ] || fail "training stood still: from epoch $epoch_before to $(epoch)"
python3 - "$T/w0.jsonl" <<'END' || fail "the old worker's push counted"
import json, sys
losses = [json.loads(line)["loss"] for line in open(sys.argv[1]) if '"loss"' in line]
assert losses[-1] < 3, losses[-1]
END
worker_log waits "$T/w0.jsonl" 2.0 $((epoch_before + 1))

# A sanitizer retains freed memory.
if ! grep -q __asan_init "/proc/$server/exe"; then
  memory_after=$(for pid in "$server" "$agent" "$supervisor"; do rss "$pid"; done)
  say "resident KB of server, agent and supervisor: before" $memory_before "after" $memory_after
  paste <(echo "$memory_before") <(echo "$memory_after") | awk '$2 > $1 + 16384 { exit 1 }' || fail "memory grew"
fi

say "another supervisor knows of them as well"
kill -KILL "$supervisor"
awaits term=2
counted 'server 0' 1 1 1
counted 'agent of localhost' 1 0 0
end_job
