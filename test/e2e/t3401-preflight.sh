# timeout=200 cost=30 plain
# dtlaunch --check: each fault of a host fails its own row and no other, with the host's name; what the check
# leaves is nothing; --preflight starts no job on such hosts.
. "$(dirname "$0")/netns.sh" && own_network "$@"
. "$(dirname "$0")/lib.sh"
faketime=$(ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null || true)
[ -n "$faketime" ] || skip "no libfaketime here: a clock cannot be wrong (scripts/install-deps --tests)"
net_hosts 4
# Else a busy machine decides how fast a link is.
for k in 1 2 3 4; do at $k tc qdisc add dev eth0 root tbf rate 1gbit burst 256kb latency 50ms; done
mkdir -p "$JOB/volume/job" "$T/empty" "$T/other"
job=$JOB/volume/job
printf '#!/bin/sh\nexit 0\n' >"$T/tool"
printf '#!/bin/sh\nexit 1\n' >"$T/another-tool"
chmod +x "$T/tool" "$T/another-tool"
for k in 1 2 3 4; do
  mkdir "$T/gpus$k"
  cp "$DT_BUILD/test/fake_nvml/fake_nvml.so" "$T/gpus$k/libnvidia-ml.so.1"
  echo "gpus 2" >"$T/gpus$k/libnvidia-ml.so.1.script"
  SSHD[k]=${_pids[2 * k - 1]}
done

# host K [VARIABLES [MOUNTS]]: host K begins again, with these variables and mounts of its own.
host() {
  local conf=$T/net/sshd$1.conf
  kill "${SSHD[$1]}"
  wait_for 5 "! alive ${SSHD[$1]}" || fail "sshd of host $1 does not end"
  sed -i "s|^SetEnv.*|SetEnv HOME=$T/net/home XDG_CACHE_HOME=$T/net/cache NVML_LIBRARY=$T/gpus$1/libnvidia-ml.so.1 ${2-}|" "$conf"
  start "sshd$1" nsenter -n -t "${NAMESPACE[$1]}" unshare -m --propagation private \
    sh -c "${3:-true} && exec $(command -v sshd) -D -e -f $conf"
  SSHD[$1]=$PID
  wait_for 10 "grep -q 'Server listening' '$T/sshd$1.out'" || fail "no sshd on host $1"
}

# check NAME LEVEL STATUS [WORDS]: runs it, and keeps the JSON.
check() {
  local name=$1 level=$2 status=$3
  shift 3
  run "$name" dtlaunch --check "$level" --json --job-dir "$job" -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --server-port 9100 "$@" "$T/tool"
  expect_status "$status"
  [ -z "$(ls -A "$job")" ] || fail "left in the job folder: $(ls -A "$job")"
}
# marks NAME [HOST CHECK MARK TEXT]...: these rows of these hosts are not OK, and no other ones.
marks() {
  python3 - "$T/$1.out" "${@:2}" <<'END'
import json, re, sys
text = [line for line in open(sys.argv[1]) if line.startswith("{")]
found = json.loads(text[-1])
words = sys.argv[2:]
wanted = [tuple(words[i:i + 4]) for i in range(0, len(words), 4)]
seen = {(h["host"].split(":")[0], check, mark) for h in found["hosts"] for check, mark in h["marks"].items()
        if mark not in ("OK", "-")}
expected = {("10.77.%s.2" % host, check, mark) for host, check, mark, _ in wanted}
if seen != expected:
    sys.exit("marks: %s\nexpected: %s\nremarks: %s" % (sorted(seen), sorted(expected), json.dumps(found["remarks"], indent=1)))
for host, check, mark, pattern in wanted:
    said = [r["what"] for r in found["remarks"] if r["host"].startswith("10.77.%s.2" % host) and r["check"] == check]
    if not any(re.search(pattern, what) for what in said):
        sys.exit("nothing like /%s/ in %s" % (pattern, said))
END
}

say "nothing is wrong"
for k in 1 2 3 4; do host $k; done
check good quick 0
marks good
grep -q '"gpus":"OK"' "$T/good.out" || fail "the GPUs were not looked at"

say "a job folder that is missing, read-only, another; a port that is closed one way"
host 1 "" "mount -t tmpfs none $JOB/volume"
host 2 "" "mount --bind $job $job && mount -o remount,ro,bind $job"
host 3 "" "mount -t tmpfs none $job"
cut_host 4 from ip daddr 10.77.1.2 tcp dport 9100
check faults quick 73 --write-good "$T/good-hosts"
marks faults 1 volume FAIL 'not mounted' 2 volume FAIL 'read-only' 3 volume FAIL 'another folder: .*tmpfs' \
  4 network FAIL 'from 10.77.4.2:2222 to 10.77.1.2:2222 \(10.77.1.2\) port 9100: no answer'
[ ! -s "$T/good-hosts" ] || fail "hosts that failed are written as good: $(cat "$T/good-hosts")"
heal
for k in 2 3; do host $k; done

say "no job begins on a bad host; one does on good ones"
run refused dtlaunch --preflight quick -n 4 --job-dir "$job" -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" "$T/tool"
expect_status 73
expect_output refused 'FAIL volume 10.77.1.2'
[ -z "$(ls -A "$job")" ] || fail "a job has begun"
sed 1d "$SSH_HOSTS" >"$T/three"
run begins dtlaunch --preflight quick -n 3 -s 0 --job-dir "$job" -H "$T/three" "${SSH_OPTIONS[@]}" "$T/tool"
expect_status 0
expect_output begins 'preflight: 3 hosts are good'
rm -rf "$job"/.dtlaunch

say "a wrong clock, a GPU that is gone, another command, a slow link"
host 1 "LD_PRELOAD=$faketime FAKETIME=+90 FAKETIME_DONT_FAKE_MONOTONIC=1"
echo "gpus 1" >"$T/gpus2/libnvidia-ml.so.1.script"
host 3 "" "mount --bind $T/another-tool $T/tool"
at 4 tc qdisc replace dev eth0 root tbf rate 10mbit burst 32kbit latency 400ms
echo 10.77.9.2:2222 >>"$SSH_HOSTS"
check more full 65 --write-good "$T/good-hosts"
marks more 1 clock FAIL '\+(89|90)\.. s off' 2 gpus FAIL '2 kinds: .*10.77.2.2:2222 1 x' \
  3 command FAIL 'tool: 2 kinds' 4 speed FAIL 'slow between 10.77.3.2:2222 and 10.77.4.2:2222: ' 9 reach FAIL '10.77.9.2'
expect_nothing_left
