# timeout=600 cost=60
# Another master takes the folder over while the old one cannot read it, or is dead and the journal's copy is missing, torn,
# short or unreadable: at no moment do two jobs of the folder train, and what is not reached is waited for.
[ "$(id -u)" = 0 ] && [ -w /dev/fuse ] || { echo "SKIPPED: root and /dev/fuse are needed"; exit 77; }
. "$(dirname "$0")/lib.sh"
ssh_hosts 2
mkdir -m 700 "$T/a" "$T/b"
cat >"$T/worker.sh" <<W
#!/bin/sh
[ "\$1" != stubborn ] || trap 'echo >>$T/told' TERM
# The job comes first: TERM may end date, and not its line.
while :; do echo "\$DT_JOB \$(date +%s%N)" >>$T/train.log; sleep 0.1; done  # how long between two lines, not a wait
W
chmod +x "$T/worker.sh"
# Slurm's programs without a cluster: nobody waits for it.
mkdir "$T/programs"
printf '#!/bin/sh\necho "squeue: fatal: no configuration" >&2\nexit 1\n' >"$T/programs/squeue"
chmod +x "$T/programs/squeue"
PATH=$T/programs:$PATH
cat >"$T/mount.py" <<'P'
import sys
sys.path.insert(0, sys.argv[1] + "/test/chaos")
import hosts
print(hosts.mount_volume(*sys.argv[2:]))
P

# on MASTER OUTPUT COMMAND...: in a machine of its own, in the job's folder; a's is a FUSE.
on() {
  local master=$1 name=$2
  shift 2
  start "$name" env MASTER="$master" T="$T" DT_SOURCE="$DT_SOURCE" JOB="$JOB" unshare --uts --mount bash -c '
    hostname "master-$MASTER"
    echo "boot-of-$MASTER" >"$T/boot-$MASTER"
    mount --bind "$T/boot-$MASTER" /proc/sys/kernel/random/boot_id
    if [ "$MASTER" = a ]; then python3 "$T/mount.py" "$DT_SOURCE" "$T/disk" "$JOB" "$T/volume" >"$T/server"; else mount --bind "$T/disk" "$JOB"; fi
    for other in a b; do [ $other = $MASTER ] || mount -t tmpfs -o mode=700 none "$T/$other"; done
    mkdir -m 700 -p "$T/$MASTER/run"
    export XDG_RUNTIME_DIR=$T/$MASTER/run XDG_STATE_HOME=$T/$MASTER/state
    cd "$JOB"
    exec "$@"' on "$@"
}
pointer() { python3 -c "import json; print(json.load(open('$T/disk/.dtlaunch/current.json'))['$1'])"; }
pause() { awk 'NR > 1 && $1 != job { printf "%d", ($2 - at) / 1e9 } { job = $1; at = $2 }' "$T/train.log"; }  # between both
jobs_of_log() { awk '{ print $1 }' "$T/train.log" | uniq; }

# take_over COPY HOST: COPY: stalled (nothing is dead), missing, torn, short, unreadable, whole; HOST: dead, alive, cut, or
# stubborn: its workers ignore TERM, and Ctrl-C comes before they are killed.
take_over() {
  local first second
  rm -rf "$T/disk" "$T/train.log" "$T"/[ab]/* "$T"/server
  mkdir "$T/disk"
  : >"$T/train.log" >"$T/told"
  on a first dtlaunch -n 2 -s 0 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --no-shared-folder --elastic-training-enabled \
    --on-change restart --orphan-timeout 12s --ssh-connect-timeout 5s --stop-timeout $([ "$2" = stubborn ] && echo 7s || echo 2s) \
    "$T/worker.sh" "$2"
  first=$PID
  wait_for 30 '[ "$(wc -l <"$T/train.log")" -gt 20 ]' || fail "the first job does not train: $(output first)"
  _pids+=("$(cat "$T/server")")
  local server=${_pids[-1]} supervisor copy
  supervisor=$(pointer pid)
  copy=$T/disk/.dtlaunch/$(pointer job)/journal
  if [ "$1" = stalled ]; then
    kill -STOP "$server"
  else
    kill -STOP "$supervisor"
    kill -KILL "$first" "$supervisor"
    wait "$first" || true
    [ "$2" != dead ] || for pid in $(left_over | awk '/worker.sh/ { print $1 }'); do kill -KILL "$pid"; done
    [ "$2" != cut ] || kill -STOP $(ssh_pid 1)
  fi
  case $1 in
    missing) rm "$copy" ;;
    torn) truncate -s -3 "$copy" ;;
    short) truncate -s 60 "$copy" ;;
    unreadable) rm "$copy" && mkdir "$copy" ;;
  esac
  on b second dtlaunch --resume "$JOB" --take-over
  second=$PID
  if [ "$1" = unreadable ]; then
    finished second "$second" 30
    expect_status 1
    expect_output second "read $JOB/.dtlaunch/.*/journal: "
  elif [ "$2" = stubborn ]; then
    wait_for 20 '[ "$(wc -l <"$T/told")" = 2 ]' || fail "no take-over: $(output second)"
    kill -INT "$second"
    finished second "$second" 60
    expect_status 130
    expect_output second 'the job was stopped: another master takes it over'
    ! grep 'did not say' "$T/second.out" || fail 'each host said that everything there has ended'
    [ "$(jobs_of_log | wc -l)" = 1 ] || fail "the job began all the same: $(output second)"
  else
    wait_for 60 '[ "$(jobs_of_log | wc -l)" -ge 2 ]' || fail "$1 $2: the second job does not train: $(output second)"
    [ "$2" != cut ] || expect_output second 'does not answer: what runs there ends by itself in [0-9]+ s at the latest'
    [ "$1" != stalled ] || kill -CONT "$server"
    [ "$1" != stalled ] || finished first "$first" 60
    [ "$1" != stalled ] || [ "$(pause)" -lt 12 ] || fail "nobody trained for $(pause) s"
    [ "$(jobs_of_log | wc -l)" = 2 ] || fail "$1 $2: two jobs trained at once: $(jobs_of_log)"
    [ ! -s "$T/disk/host_worker_log" ] || fail "lines of another job: $(cat "$T/disk/host_worker_log")"
  fi
  [ "$2" != cut ] || kill -CONT $(ssh_pid 1)
  kill -INT "$second" 2>/dev/null || true
  finished second "$second" 60
  STEP=0.5 wait_for 30 '[ -z "$(left_over | grep -Ev "sshd|volume.py")" ]' || fail "left over: $(left_over)"
  kill -KILL "$server"
}
ssh_pid() { cat "$T/ssh/${SSH_ADDRESSES[$1]}/sshd.pid"; }

say "the old master lives, and cannot read its folder"
take_over stalled alive
say "the old master is dead, with the journal's copy: a host is cut off"
take_over missing cut
say "the copy cannot be read"
take_over unreadable alive
is_nightly || exit 0
say "Ctrl-C while the old job is stopped"
take_over whole stubborn
for copy in missing torn short; do
  for host in alive dead cut; do
    say "$copy, $host"
    take_over $copy $host
  done
done
