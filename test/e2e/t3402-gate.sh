# timeout=200 cost=40
# The newcomers' gate (--preflight): a host like the base hosts joins; one with another command, and one with
# another folder in the place of the job's, are refused with that row and its remedy, while the others train on;
# mended and added again one joins. The next supervisor has the gate, too; a check ends with its job.
. "$(dirname "$0")/netns.sh" && own_network "$@"
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
net_hosts 4
mapfile -t hosts <"$SSH_HOSTS"
head -n 1 "$SSH_HOSTS" >"$T/one"
mkdir "$T/bin"
printf '#!/bin/sh\nexec %s/elastic_worker "$@"\n' "$DT_BIN" >"$T/bin/tool"
printf '#!/bin/sh\n# An older one.\nexec %s/elastic_worker "$@"\n' "$DT_BIN" >"$T/bin/older"
chmod +x "$T"/bin/*

# host K [MOUNTS]: the sshd of host K begins again, with mounts of its own.
host() {
  [ -z "${SSHD[$1]-}" ] || { kill "${SSHD[$1]}"; wait_for 5 "! alive ${SSHD[$1]}" || fail "sshd of host $1 does not end"; }
  start "sshd$1" nsenter -n -t "${NAMESPACE[$1]}" unshare -m --propagation private \
    sh -c "${2:-true} && exec $(command -v sshd) -D -e -f $T/net/sshd$1.conf"
  SSHD[$1]=$PID
  wait_for 10 "grep -qs 'Server listening' '$T/sshd$1.out'" || fail "no sshd on host $1"
}
for k in 3 4; do SSHD[k]=${_pids[2 * k - 1]}; done
# is_checked: waits for a check; sets CHECK to its folder on the volume.
is_checked() {
  STEP=0.05 wait_for 20 'CHECK=$(echo "$JOB"/.dtlaunch-check-*) && [ -d "$CHECK" ]' || fail 'no host is checked'
}
is_asked() { pgrep -P "$(supervisor)" -f -- --gate >"$T/asked"; }
is_gone() { wait_for "${1:-5}" "[ ! -e '$CHECK' ]" || fail "a check has left $CHECK"; }
# refused K ROW PATTERN: host K is held for that reason.
refused() {
  local name=${hosts[$1 - 1]}
  happens host_failed "${name%:*}.*preflight failed: $2: .*$3.*remedy"
  awaits ".hosts[host=$name,check=preflight].length=1"
  run "why$1" dtctl why "${name%:*}"
  expect_output "why$1" "Last failure: preflight failed: $2: .*$3.*\(remedy: "
  expect_output "why$1" 'To pass: mend what is named above'
}

host 3 "mount --bind $T/bin/older $T/bin/tool"
host 4 "mount -t tmpfs none $JOB"
TRAIN_COMMAND=$T/bin/tool train -n 1 -s 1 -H "$T/one" "${SSH_OPTIONS[@]}" --transport tcp --preflight quick --
expect_output job 'preflight: 1 host is good'
say 'one that is good'
echo "${hosts[1]}" >>host_worker
changed 'ADDED 10.77.2.2'
happens preflight "${hosts[1]}"

say 'two that are not'
before=$(epoch)
printf '%s\n' "${hosts[2]}" "${hosts[3]}" >>host_worker
refused 3 command 'bin/tool: 2 kinds: 10.77.1.2:2222 [0-9a-f]{12}, 10.77.3.2:2222 [0-9a-f]{12}'
refused 4 volume "$JOB: another folder: none, tmpfs there"
some_epochs 2
worker_log waits "$T/w0.jsonl" 2 "$before"
changed 'ADDED 10.77.2.2'

say 'the next supervisor, mended hosts, and the same lines again'
is_checked
kill -KILL "$(supervisor)"
happens supervisor_back
is_gone 20  # the next check removes it
sed -i '3,$d' host_worker
awaits ".hosts[host=${hosts[2]}].length=0" ".hosts[host=${hosts[3]}].length=0"
host 3
host 4
echo "${hosts[2]}" >>host_worker
changed 'ADDED 10.77.2.2' 'ADDED 10.77.3.2'
cut_host 4 from tcp dport "$(python3 -c 'import json, sys; print(json.load(sys.stdin)["servers"][0]["port"])' < <(dtctl status --json))"
echo "${hosts[3]}" >>host_worker
refused 4 network "from 10.77.4.2:2222 to 10.77.1.2:2222 .10.77.1.2. port [0-9]*: no answer"

say 'its line goes during a check'
take_out_4() {
  sed -i '$d' host_worker
  awaits ".hosts[host=${hosts[3]}].length=0"
}
take_out_4
echo "${hosts[3]}" >>host_worker
STEP=0.02 wait_for 20 'probe=$(pgrep --ns "${NAMESPACE[4]}" --nslist net -f "dtagent --check")' || fail 'no host is checked'
kill -STOP $probe
is_asked || fail 'the check does not wait for its answer'
take_out_4
wait_for 3 '! is_asked' || fail 'the check of a host that is let go goes on'
kill -KILL $probe

say 'the job ends during a check'
echo "${hosts[3]}" >>host_worker
is_checked
end_job
is_gone
