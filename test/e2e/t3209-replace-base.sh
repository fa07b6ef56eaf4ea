# timeout=200 cost=20
# dtctl replace: the places of a host of the launch go to another host at one boundary, whether it lives or is lost.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 5
mapfile -t hosts <"$SSH_HOSTS"
head -n 3 "$SSH_HOSTS" >base
refused() {  # STATUS PATTERN COMMAND...
  local status=$1 pattern=$2
  shift 2
  run refusal "$@"
  expect_status "$status"
  expect_output refusal "$pattern"
}
base_is() { shows "s[\"file\"][\"base\"] == \"$*\".split()"; }
log_is() { changed "${@//:[0-9]*/}"; }

say "a job that has not begun cannot replace a host"
start early dtlaunch -n 3 -s 1 -H base "${SSH_OPTIONS[@]}" --elastic-training-enabled sleep 60
EARLY=$PID
awaits --start '.state=starting'
refused 1 'no epoch has begun yet' dtctl replace "${hosts[1]}" "${hosts[3]}"
dtctl stop >/dev/null
finished early "$EARLY" 30

train -n 3 -s 1 -H base "${SSH_OPTIONS[@]}" --checkpoint-every 5 --
say "what is refused changes nothing"
refused 1 "${hosts[4]} is no host of the initial launch: dtctl add ${hosts[3]}" dtctl replace "${hosts[4]}" "${hosts[3]}"
refused 1 "${hosts[2]} is a host of the initial launch itself" dtctl replace "${hosts[1]}" "${hosts[2]}"
refused 2 'usage: dtctl replace OLD NEW' dtctl replace "${hosts[1]}"
refused 1 'is not the name of one host' dtctl replace "${hosts[1]}" 'n[8-9]'
base_is "${hosts[@]:0:3}"

say "one that lives: it stays until the other is ready, and both change at one boundary"
"$DT_SOURCE/scripts/sshd-hosts" kill "$T/ssh" "${SSH_ADDRESSES[3]}"
run replace dtctl replace "${hosts[1]}" "${hosts[3]}"
expect_status 0
expect_output replace "${hosts[3]} gets the places of ${hosts[1]} at the first epoch for which it is ready"
happens host_failed "${hosts[3]}"
some_epochs 2
[ ! -s host_worker_log ] || fail "it was not ready: $(cat host_worker_log)"
dtctl status | grep -q "^base, which the file may not remove:.*${hosts[1]} (until ${hosts[3]} is ready to replace it)" || fail "$(dtctl status)"
kill -KILL "$(supervisor)"  # what was asked for is in the journal
awaits --start state=running
"$DT_SOURCE/scripts/sshd-hosts" start-one "$T/ssh" "${SSH_ADDRESSES[3]}"
PATIENCE=60 log_is "ADDED ${hosts[3]}" "REMOVED ${hosts[1]}"
base_is "${hosts[0]}" "${hosts[2]}" "${hosts[3]}"
[ "$(event committed)" = 1 ] || fail "not one boundary: $(grep '"committed"' "$(story)")"
[ "$(sort host_worker)" = "$(printf '%s\n' "${hosts[0]}" "${hosts[2]}" "${hosts[3]}" | sort)" ] || fail "$(cat host_worker)"
refused 1 'is a host of the initial launch: its workers stay' dtctl remove "${hosts[3]}"

say "one that is lost: the other joins, and the lost one is not asked for again"
lost=$(dtctl status --json | python3 -c 'import json, sys
print(*[w["pid"] for w in json.load(sys.stdin)["workers"] if w["host"] == sys.argv[1]])' "${hosts[2]}")
"$DT_SOURCE/scripts/sshd-hosts" kill "$T/ssh" "${SSH_ADDRESSES[2]}"
kill -KILL "$(ps -o ppid= -p "$lost" | tr -d ' ')" "$lost"
happens host_lost "${hosts[2]}"
dtctl replace "${hosts[2]}" "${hosts[4]}"
PATIENCE=60 log_is "ADDED ${hosts[3]}" "REMOVED ${hosts[1]}" "REMOVED ${hosts[2]}" "ADDED ${hosts[4]}"
base_is "${hosts[0]}" "${hosts[3]}" "${hosts[4]}"
"$DT_SOURCE/scripts/sshd-hosts" start-one "$T/ssh" "${SSH_ADDRESSES[2]}"
some_epochs 3
shows 'sorted(w["host"] for w in s["workers"]) == sorted("'"${hosts[0]} ${hosts[3]} ${hosts[4]}"'".split())'
worker_log once "$T/w0.jsonl"

say "the next run has them, too, whatever the hosts file says"
dtctl stop >/dev/null
finished job "$JOB_PID" 30
start again dtlaunch --resume .
JOB_PID=$PID
awaits --start '.state=running'
base_is "${hosts[0]}" "${hosts[3]}" "${hosts[4]}"
end_job
