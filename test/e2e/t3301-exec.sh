# timeout=120 cost=12
# dtctl exec over real sshds and on this machine: words and output as they are, exit codes, a host that is
# down, commands that end with dtctl.
. "$(dirname "$0")/lib.sh"
count=3
! is_nightly || count=8
new_hosts $count
ALL_HOSTS=$SSH_HOSTS SSH_HOSTS=$T/three
head -n 3 "$ALL_HOSTS" >"$SSH_HOSTS"
hosts=($(cat "$SSH_HOSTS"))
on_hosts() {  # NAME WORD...: dtctl exec with these words
  local name=$1
  shift
  run "$name" dtctl exec "${SSH_OPTIONS[@]}" -H "$SSH_HOSTS" "$@"
}
same() {  # NAME LINE...: the output is exactly these lines, in any order
  diff <(printf '%s\n' "${@:2}" | sort) <(output "$1" | sort) || fail "the output of $1 is not that"
}

say "usage"
run nothing dtctl exec
expect_status 2
expect_output nothing 'the command is missing'
run no_dashes dtctl exec "${SSH_OPTIONS[@]}" -H "$SSH_HOSTS" true
expect_status 2
run no_hosts dtctl exec -- true
expect_status 2
expect_output no_hosts 'no job was ever started in .*: name hosts with -H FILE or -w HOSTS'
run wrong dtctl exec -w 'h[3' -- true
expect_status 2

say "one word is a shell's text, several are words"
on_hosts text -- 'echo "a b"; exit 3'
expect_status 3
same text "[${hosts[0]}] a b" "[${hosts[1]}] a b" "[${hosts[2]}] a b" \
  "dtctl: exit code 3 on 3 of 3 hosts: $(sed 's/\.\([0-9]*\):.*/.[\1/;q' "$SSH_HOSTS")-$(tail -n 1 "$SSH_HOSTS" | sed 's/.*\.\([0-9]*\):/\1]:/')"
run words dtctl exec "${SSH_OPTIONS[@]}" -w "${hosts[1]}" -- printf '<%s>\n' 'a  b' '$HOME' "it's" '*' $'1\n2' '"' '\t' '!x' 'é'
expect_status 0
same words "[${hosts[1]}] <a  b>" "[${hosts[1]}] <\$HOME>" "[${hosts[1]}] <it's>" "[${hosts[1]}] <*>" \
  "[${hosts[1]}] <1" "[${hosts[1]}] 2>" "[${hosts[1]}] <\">" "[${hosts[1]}] <\\t>" "[${hosts[1]}] <!x>" "[${hosts[1]}] <é>"

say "stdin"
on_hosts empty --timeout 20 -- cat
expect_status 0
[ -z "$(output empty)" ] || fail "stdin is not empty: $(output empty)"
seq 30000 >"$T/input"
on_hosts input --input "$T/input" -b -- 'wc -l; sleep 0.2; head -c 1 | wc -c'  # how long nothing is read, not a wait
expect_status 0
expect_output input '\] \(3\): 30000$'
[ "$(output input | wc -l)" = 2 ] || fail "equal outputs are not folded: $(output input)"

say "the largest code, stderr, JSON"
on_hosts codes -- 'echo out; echo err >&2; exit "${DT_SSHD_HOST##*.}"'
[ "$STATUS" = "${SSH_ADDRESSES[2]##*.}" ] || fail "exit status $STATUS is not the largest"
on_hosts json --json -- 'printf "o\n\033"; echo err >&2; kill -9 $$'
expect_status 137
python3 -c 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
assert sorted(line["host"] for line in lines) == sorted(sys.argv[2:]), lines
for line in lines:
    assert line["exit_code"] == 137 and line["stdout"] == "o\n\x1b" and "err\n" in line["stderr"], line' \
  "$T/json.out" "${hosts[@]}"

say "a starter that ends with 0 before the command does has lost its host; what looks like a mark is output"
printf '%s\n' '#!/bin/sh' 'sh -c "$2" | timeout 1 cat' 'exit 0' >"$T/starter"
chmod +x "$T/starter"
run lossy dtctl exec -w lost --launcher command --rsh "$T/starter {host} {command}" -- 'echo begins; sleep 3'  # how long the command outlives its starter, not a wait
expect_status 65
same lossy "[lost] begins" "dtctl: 1 of 1 hosts not reached, or lost:" "  lost: the connection ended before the command did, with exit code 0: was the host lost?"
run marks dtctl exec -w here --launcher local --json -- 'printf "\001"; printf "\001dtctl:ended x\n\001dtctl:end"; exit 3'
expect_status 3
grep -Fq '"stdout":"\u0001\u0001dtctl:ended x\n\u0001dtctl:end"' "$T/marks.out" || fail "$(cat "$T/marks.out")"
run bytes dtctl exec -w here --launcher local -- 'head -c 300000 /dev/zero | tr "\0" "\001"'
expect_status 0
[ "$(grep -o '\\x01' "$T/bytes.out" | wc -l)" = 300000 ] || fail "$(grep -o '\\x01' "$T/bytes.out" | wc -l) of 300000 bytes came"

say "10 MB of each host, whole and unmixed"
SSH_HOSTS=$ALL_HOSTS on_hosts much -- 'seq -f "$DT_SSHD_HOST %0100.0f" 1 100000 & seq -f "$DT_SSHD_HOST err %020.0f" 1 1000 >&2; wait'
expect_status 0
python3 - "$T/much.out" $(cat "$ALL_HOSTS") <<'END'
import sys
seen = {}
for line in open(sys.argv[1]):
    host, words = line[1:].rstrip("\n").split("] ", 1)
    name, *kind, number = words.split(" ")
    assert host.startswith(name + ":"), line
    key = (host, *kind)
    seen[key] = seen.get(key, 0) + 1
    assert int(number) == seen[key], line
for host in sys.argv[2:]:
    assert seen[(host,)] == 100000 and seen[(host, "err")] == 1000, seen
END

say "--timeout and --parallel"
on_hosts late --timeout 500ms -- "sleep 471$$ & sleep 472$$; wait"
expect_status 124
expect_output late 'ended after --timeout'
gone_there() { ! pgrep -f "sleep 47[1-4]$$" >/dev/null; }
wait_for 5 gone_there || fail "the commands live: $(pgrep -af "sleep 47[1-4]$$")"
# A folder is a lock: two at a time would find it.
on_hosts one_by_one --parallel 1 -- "mkdir $T/lock && sleep 0.1 && rmdir $T/lock"  # how long a host has the lock, not a wait
expect_status 0

say "Ctrl-C, and dtctl killed, end the commands there"
for signal in INT KILL; do
  start "signal_$signal" dtctl exec "${SSH_OPTIONS[@]}" -H "$SSH_HOSTS" -- "sleep 473$$ & trap '' INT; sleep 474$$; echo on"
  wait_for 10 "[ \$(pgrep -cf '^sleep 474$$') = 3 ]" || fail "not begun: $(output signal_$signal)"
  kill -$signal "$PID"
  finished exec "$PID" 10
  [ $signal = KILL ] || expect_status 130
  wait_for 5 gone_there || fail "the commands live: $(pgrep -af "sleep 47[1-4]$$")"
done

say "a host that is silent, and one that is down"
silent=$(cat "$T/ssh/${SSH_ADDRESSES[1]}/sshd.pid")
kill -STOP "$silent"
begun=$SECONDS
on_hosts silent -- 'echo there'
lasted=$((SECONDS - begun))
kill -CONT "$silent"
expect_status 65
expect_output silent "^\[${hosts[0]}\] there"
expect_output silent '1 of 3 hosts not reached'
[ $lasted -lt 16 ] || fail "it took $lasted s (8 s, on a host that is not busy)"
"$DT_SOURCE/scripts/sshd-hosts" kill "$T/ssh" "${SSH_ADDRESSES[1]}"
on_hosts down -- 'echo there; exit 70'
expect_status 65
expect_output down "^\[${hosts[0]}\] there"
expect_output down "^\[${hosts[2]}\] there"
expect_output down '1 of 3 hosts not reached'
expect_output down "^  ${hosts[1]}: connect"

say "this machine, and the hosts of a job that has ended"
run here dtctl exec --launcher local -- 'cat; echo "a b"; sleep 0.1 & exit 5'  # how long a child outlives the command, not a wait
expect_status 5
same here '[localhost] a b' 'dtctl: exit code 5 on 1 of 1 hosts: localhost'
run job dtlaunch -q -n 1 true
expect_status 0
run its_hosts dtctl exec -- 'echo hello'
expect_status 0
same its_hosts '[localhost] hello'
run other dtctl exec -w 127.0.0.250:1 -- 'echo hello'  # not on this machine, as the job's hosts
expect_status 65
expect_output other '1 of 1 hosts not reached'
start local_int dtctl exec -- "sleep 473$$"
wait_for 10 "pgrep -f '^sleep 473$$' >/dev/null" || fail "not begun: $(output local_int)"
kill -INT "$PID"
finished exec "$PID" 10
expect_status 130
expect_nothing_left

say "under nohup a closed terminal ends neither exec nor a check"
start hup nohup dtctl exec --launcher local -- 'echo begun; sleep 1; echo over'  # how long it lives without a terminal, not a wait
wait_for 10 'grep -q begun "$T/hup.out"'
kill -HUP "$PID"
finished exec "$PID" 10
expect_status 0
expect_output hup 'over'
