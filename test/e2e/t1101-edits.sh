# timeout=180 cost=35
# Every way in which people and editors save host_worker has the obvious effect, or keeps the last
# good list and reports that. What they make of host_worker_log is set aside, and it is whole again.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
train -n 1 --
line=$(cat host_worker)
[ "$line" = localhost ] || fail "host_worker begins with: $line"

accepted=1 lines=()
# accepts COUNT: the workers of the edit just made, taken over within PATIENCE, once, and logged.
accepts() {
  local i
  if [ "$1" != $accepted ]; then
    awaits ".file.accepted.length=$1" .file.refused=null
    for ((i = accepted; i < $1; i++)); do lines+=('ADDED localhost'); done
    for ((i = accepted; i > $1; i--)); do lines+=('REMOVED localhost'); done
    accepted=$1
  fi
  changed "${lines[@]}"
  awaits "workers=$1"
}
# refuses WHY: the edit just made; the last good list stays.
refuses() {
  local before
  awaits ".file.refused.why~$1" ".file.accepted.length=$accepted" "workers=$accepted"
  happens file_refused "$1.*the last good list stays"
  wait_for 5 "grep -Eq 'WARNING .*$1' '$T/job.out'" || fail "the console does not say it: $1"
}
two=$'localhost\nlocalhost\n' one=$'localhost\n'

say 'appended, sed -i, cp'
echo localhost >>host_worker && accepts 2
sed -i 2d host_worker && accepts 1
printf %s "$two" >"$T/new" && cp "$T/new" host_worker && accepts 2
printf %s "$one" >"$T/new" && mv "$T/new" host_worker && accepts 1

say 'CRLF, blank lines, comments, trailing blanks'
printf '# mine\r\n\r\nlocalhost  \r\n\t\r\nlocalhost\t# second\r\n\n' >host_worker && accepts 2

say 'emptied at once, content a second later'
: >host_worker
sleep 1.2  # how long it is empty, not a wait
printf %s "$one" >host_worker && accepts 1

say 'truncated for good'
: >host_worker && refuses 'names no host'
printf %s "$one" >host_worker
awaits .file.refused=null
happens file_cleared

say 'only comments'
printf '# nobody\n\n' >host_worker && refuses 'names no host'

say 'deleted, and there again'
rm host_worker && refuses 'host_worker is gone'
printf %s "$two" >host_worker && accepts 2

say 'one line of garbage'
printf 'localhost\nloc alhost!\n' >host_worker && refuses 'host_worker:2:5'
some_epochs 1

say 'a line half written: taken only when it stays so'
# "localhost" without its last letters would be another host: the supervisor waits for a writer that
# pauses in the middle of a line.
printf 'localhost\nlocalho' >host_worker
sleep 1.5  # how long the writer pauses, not a wait
printf 'st\nlocalhost\n' >>host_worker && accepts 3
[ "$(event file_accepted localho,)" = 0 ] && ! grep -Eq 'localho("|,| |$)' events.jsonl || fail "half a line was taken"
printf 'localhost\nlocalhost' >host_worker && accepts 2

say 'a link to a file of a group, by dtctl'
mkdir "$T/config"
mv host_worker "$T/config/hosts"
chmod 664 "$T/config/hosts"
ln -s "$T/config/hosts" host_worker
dtctl add localhost >"$T/add.out" 2>&1 || fail "$(output add)"
accepts 3
[ "$(readlink host_worker)" = "$T/config/hosts" ] || fail "host_worker is no link any more"
[ "$(stat -c %a "$T/config/hosts")" = 664 ] || fail "it has another mode"
printf %s "$two" >"$T/config/hosts" && accepts 2

# vandalised SET_ASIDE COMMAND...: what others make of host_worker_log is set aside when the next line
# is written, and the log is whole again; "-": there is nothing to set aside.
foreigns=0
vandalised() {
  local had=$1
  shift
  say "host_worker_log: $*"
  "$@"
  [ "$had" = - ] || cp host_worker_log "$T/had"
  if [ $accepted = 2 ]; then
    echo localhost >>host_worker && accepts 3
  else
    printf %s "$two" >host_worker && accepts 2
  fi
  [ "$had" != - ] || return 0
  foreigns=$((foreigns + 1))
  happens log_changed . $foreigns
  cmp "$T/had" .dtlaunch/*/host_worker_log.foreign || fail "not set aside"
  awaits '.log_foreign~host_worker_log.foreign'
}
rm host_worker && printf %s "$two" >host_worker
vandalised yes sed -i 1d host_worker_log
vandalised yes eval 'echo mine >>host_worker_log'
vandalised yes eval 'echo mine >"$T/mine" && cp "$T/mine" host_worker_log'
vandalised yes eval 'echo mine >"$T/mine" && mv "$T/mine" host_worker_log'
vandalised - eval ': >host_worker_log'
vandalised - rm host_worker_log
dtctl status | grep -q 'others have changed it: what they left is .*host_worker_log.foreign' || fail "$(dtctl status)"

worker_log once "$T/w0.jsonl"
worker_log waits "$T/w0.jsonl" 2
end_job

say "the tutorial's edit takes out one host"
mkdir "$T/tutorial"
cd "$T/tutorial"
printf '10.0.1.%s\n' 9 90 99 >host_worker
echo 110.0.1.9 >>host_worker
eval "$(sed -n 's/^    \(sed -i .* host_worker\)$/\1/p' "$DT_SOURCE/packaging/doc/tutorial.md")"
[ "$(tr '\n' ' ' <host_worker)" = "10.0.1.90 10.0.1.99 110.0.1.9 " ] || fail "it leaves $(cat host_worker)"
