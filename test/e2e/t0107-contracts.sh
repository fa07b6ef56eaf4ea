# timeout=120 cost=18 plain
# What others build on stays as it is: the names of options and of variables, what bare dtlaunch answers (bare.txt), the
# console's first lines, host_worker_log, and the fields of `dtctl status --json`, of events and of answers on the control
# socket. Each is compared with a file in test/contracts; DT_REWRITE=1 writes them: commit only what you mean to promise.
# --help has at most 80 columns.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
GOLDEN=$DT_SOURCE/test/contracts
golden() {  # NAME: what stands in $T/NAME is what stands in the golden file
  if [ -n "${DT_REWRITE-}" ]; then cp "$T/$1" "$GOLDEN/$1"; fi
  diff -u "$GOLDEN/$1" "$T/$1" || fail "test/contracts/$1 promises something else"
}

# Beside this test's quiet job run two in which all happens that a status tells of. In $T/waits the workers come to wait for
# each other, and a host refuses connections; $T/faults is for the rest, first for a worker that is stopped.
cp "$DT_BUILD/test/fake_nvml/fake_nvml.so" "$T/libnvidia-ml.so.1"
beside() { # NAME SCRIPT WORD OPTIONS...: such a job in $T/NAME
  mkdir "$T/$1"
  dtlaunch --job-dir "$T/$1" --detach -n 2 -s 1 --elastic-training-enabled "${@:4}" \
    "$PYTHON" "$DT_SOURCE/test/e2e/python/$2.py" "$3" >"$T/$1.out" 2>&1 || fail "$(output "$1")"
}
beside faults slow L0 --env NVML_LIBRARY="$T/libnvidia-ml.so.1"
echo localhost via=local >"$T/hosts"
beside waits orders order -H "$T/hosts" --ssh-config none
echo 127.0.0.1:1 >>"$T/waits/host_worker"

for program in dtlaunch dtctl dtserver dtsupervisor dtfleet dtagent dttrain dtgpucheck; do
  [ -x "$DT_BIN/$program" ] || { grep "^$program " "$GOLDEN/options.txt" >>"$T/options.txt"; continue; }
  commands=('') rows=.
  # A command of dtctl has its own options. Those that the list of commands names are theirs.
  [ $program != dtctl ] || { commands+=($(dtctl --help | sed -nE 's/^  ([a-z]+) .*/\1/p')) rows='^  -'; }
  for command in "${commands[@]}"; do
    { "$program" $command --help || true; } >"$T/help.txt" 2>&1
    [ "$(wc -l <"$T/help.txt")" -gt 5 ] || fail "$program $command --help: $(cat "$T/help.txt")"
    ! grep -nE '.{81}' "$T/help.txt" || fail "$program $command --help has lines of more than 80 columns"
    grep -e "$rows" "$T/help.txt" | tr -s ' |[](),' '\n' |
      grep -xE -- '-[a-zA-Z]|--[a-z][a-z-]*' | sort -u | sed "s/^/$program ${command:+$command }/" >>"$T/options.txt"
  done
done
golden options.txt

STATUS=0
dtlaunch >"$T/bare.out" 2>"$T/bare.txt" || STATUS=$?
[ "$STATUS $(wc -l <"$T/bare.txt") $(wc -c <"$T/bare.out")" = '2 12 0' ] || fail "bare dtlaunch: $STATUS, $(cat "$T/bare.txt")"
golden bare.txt

cat >"$T/worker" <<'EOT'
#!/bin/sh
[ "$DT_WORKER_ID" != 0 ] || env >"$T/worker.env"
[ "${DT_NEWCOMER:-0}" = 0 ] || env >"$T/newcomer.env"
exec elastic_worker "$@"
EOT
chmod +x "$T/worker"
export T
TRAIN_COMMAND=$T/worker train -n 1 -s 1 --min-workers 1 --checkpoint-every 1 --env T --
echo localhost >>host_worker
changed 'ADDED localhost'
PATIENCE=20 awaits 'checkpoint>=1' workers=2
shows 's["workers"][1]["progress"] and s["goodput"] and s["pulse"]["epoch_s"]'
server=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["servers"][0]["pid"])' "$T/status.json")
tr '\0' '\n' <"/proc/$server/environ" >"$T/server.env"
for process in worker newcomer server; do
  grep -oE '^(DT|DTKV|DMLC|PS|RANK|LOCAL|WORLD|MASTER|GROUP|ROLE|TORCHELASTIC)(_[A-Z0-9_]+)?=' "$T/$process.env" | tr -d = |
    sort -u | comm -23 - <(env | cut -d= -f1 | sort) | sed "s/^/$process /" >>"$T/environment.txt"
done
golden environment.txt

# The paths of all values of JSON documents, one a line; of an object that is null at times, those inside it.
cat >"$T/paths.py" <<'EOT'
import json, sys
def walk(value, path):
    if isinstance(value, dict) and value:
        for key in value:
            yield from walk(value[key], f"{path}.{key}")
    elif isinstance(value, list) and value:
        for item in value:
            yield from walk(item, path + "[]")
    else:
        yield path + "[]" * isinstance(value, list), value
values = [pair for line in sys.stdin for pair in walk(json.loads(line), sys.argv[1])]
paths = {path for path, _ in values}
paths = {p for p in paths if not any(q.startswith(p + ".") for q in paths)}
if "empty" in sys.argv:  # null, "", false or [] in all documents
    paths -= {path for path, value in values if value or type(value) in (int, float)}
print("\n".join(sorted(paths)))
EOT
cd "$T/faults"
awaits '.workers[id=0].values.step>=0'
kill -STOP "$(pid_of workers 0)"
cd "$JOB"

# The control socket itself: frames of a length, a kind and a text that is JSON.
cat >"$T/ask.py" <<'EOT'
import json, socket, struct, sys
link = socket.socket(socket.AF_UNIX)
link.connect(json.load(open(".dtlaunch/current.json"))["socket"])
text = sys.argv[1].encode()
link.sendall(struct.pack("<IHI", len(text) + 6, 160, len(text)) + text)
size, kind, length = struct.unpack("<IHI", link.recv(10, socket.MSG_WAITALL))
assert (kind, size) == (161, length + 6), (kind, size, length)
print(json.dumps(json.loads(link.recv(length, socket.MSG_WAITALL))))
EOT
ask() {
  python3 "$T/ask.py" "$1" >"$T/answer.json"
  printf '%s\n' "$1"
  python3 "$T/paths.py" answer <"$T/answer.json" | grep -v '\.events\[\]' | sed 's/^/  /'
}
{
  ask '{"op":"add","host":"localhost","slots":1}'
  changed 'ADDED localhost' 'ADDED localhost'
  ask '{"op":"remove","host":"localhost"}'
  changed 'ADDED localhost' 'ADDED localhost' 'REMOVED localhost' 'REMOVED localhost'
  ask '{"op":"leave","host":"localhost","deadline_s":3600,"why":"reboot"}'
  ask '{"op":"leave","host":"localhost","cancel":true}'
  ask '{"op":"leave","host":"stranger"}'
  for request in '{"op":"events","from":0}' '{"op":"changes","from":0}' '{"op":"console"}' '{"op":"dance"}' '{"op":"add"}' \
    'no json'; do
    ask "$request"
  done
} >"$T/control.txt"
golden control.txt

run stop python3 "$T/ask.py" '{"op":"stop","force":false,"why":"enough"}'
finished job "$JOB_PID" 20
expect_status 130
grep -oE 'INFO (Created|Launching) .*' "$T/job.out" | sed "s|$JOB|JOB|" | sort | uniq -c >"$T/console.txt"
golden console.txt
sed -E 's/[0-9]{19}$/NANOSECONDS/' host_worker_log >"$T/host_worker_log.txt"
golden host_worker_log.txt

# with CONDITION...: the job's status once they hold is one of those with all fields.
with() { awaits "$@" && dtctl status --json >>"$T/status.json"; }
cd "$T/faults"
with '.workers[id=0].stalls!=null'
kill -CONT "$(pid_of workers 0)"
cd "$T/waits"
echo 'no host at all' >>host_worker
with '.standstill!=null' '.workers[id=0].waits!=null' '.hosts[host=127.0.0.1:1].check=reach' '.file.refused!=null'
dtctl stop --force >/dev/null
cd "$T/faults"
port=$(dtctl status --json | sed -E 's/.*"port":([0-9]+).*/\1/')
echo 'a stranger, who says more than a greeting has' >"/dev/tcp/127.0.0.1/$port"
python3 "$T/ask.py" '{"op":"fleet","report":"{\"provider\":\"Slurm\",\"text\":\"1 asked for\"}"}' >/dev/null
with '.balance!=null' '.gpus[index=1].busy_percent=93' '.kept_out.length>0' '.fleet!=null' 'checkpoint>=1'
kill -STOP "$(pid_of workers 0)" "$(pid_of workers 1)"
kill -KILL "$(pids_of servers)"
for words in '' '--in 1h'; do dtctl leave localhost $words >/dev/null; done
with '.rolling_back!=null' '.hosts[host=localhost].leaving!=null' '.leaving!=null'
dtctl stop --force >/dev/null
python3 "$T/paths.py" status <"$T/status.json" | sed -E 's/\.(lost_s|texts|values)\..*/.\1.*/' | sort -u >"$T/status.txt"
golden status.txt
# What no job here fills, or not each time: a field belongs to these only if no test can bring it about.
python3 "$T/paths.py" status empty <"$T/status.json" | sed -E 's/\.(lost_s|texts|values)\..*/.\1.*/' | sort -u >"$T/status_empty.txt"
if [ -n "${DT_REWRITE-}" ]; then sort -u -o "$GOLDEN/status_empty.txt" "$GOLDEN/status_empty.txt" "$T/status_empty.txt"; fi
unfilled=$(comm -23 "$T/status_empty.txt" "$GOLDEN/status_empty.txt")
[ -z "$unfilled" ] || fail "no job filled $unfilled"
expect_nothing_left
