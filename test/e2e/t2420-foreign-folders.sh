# timeout=120 cost=12
# Another user's job files say how hosts are reached: no command of dtctl and dtlaunch uses them, not for root either.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || skip "only root makes other users' files"
stranger=61002 user=61001
chmod 711 "$T"
mkdir -m 755 "$T/p" "$T/c"
for program in dtlaunch dtctl dtsupervisor dtagent dtserver dtfleet; do
  ln "$DT_BIN/$program" "$T/p/" 2>/dev/null || cp "$DT_BIN/$program" "$T/p/"
done
chmod 755 "$T"/p/*
run base dtlaunch -n 1 -s 0 true
expect_status 0
name=$(sed -nE 's/.*"job":"([^"]+)".*/\1/p' .dtlaunch/current.json)

# foreign NAME: a folder with a whole job, ended badly, whose files would make their user run a command.
foreign() {
  local folder=$T/c/$1 state=$T/c/$1-state
  rm -rf "$folder" "$state" && mkdir "$folder" && cp -r .dtlaunch "$folder/" && cp -r "$XDG_STATE_HOME/dtlaunch/$name" "$state"
  chmod 777 "$T/c" && chmod 700 "$state"
  python3 - "$folder" "$state" "$name" "$T/c/pwned" <<'EOT'
import json, sys
folder, state, name, pwned = sys.argv[1:]
for path in (f"{folder}/.dtlaunch/{name}/spec.json", f"{state}/spec.json"):
    spec = json.load(open(path))
    trap = "/bin/sh -c 'id >>" + pwned + "; exit 1' {host} {command}"
    spec |= {"launcher": "command", "rsh": trap, "prepare_data": "id >>" + pwned, "state_dir": state, "job_dir": folder,
             "command": ["sh", "-c", "id >>" + pwned], "restore": folder, "socket": f"{state}/control", "workers": [{"user": "", "name": "gpu01", "port": 0}]}
    json.dump(spec, open(path, "w"))
pointer = json.load(open(f"{folder}/.dtlaunch/current.json"))
pointer |= {"state_dir": state, "socket": f"{state}/control", "ended": None}
json.dump(pointer, open(f"{folder}/.dtlaunch/current.json", "w"))
EOT
  chown -R "$2" "$folder" "$state"
}
# as UID COMMAND...
as() {
  local uid=$1 home=$T/c/home-$1
  shift
  mkdir -m 700 -p "$home/run" && chown -R "$uid" "$home"
  setpriv --reuid="$uid" --regid="$uid" --clear-groups env HOME="$home" XDG_RUNTIME_DIR="$home/run" XDG_STATE_HOME="$home/state" \
    XDG_CACHE_HOME="$home/cache" PATH="$T/p:/usr/bin:/bin" timeout 20 "$@"
}
# nothing_runs UID WORDS CASE: each command, in the folder of the case.
nothing_runs() {
  local uid=$1 words=$2 case=$3 command refused=0
  while read -r command; do
    (cd "$T/c/$case" && as "$uid" bash -c "$command") >"$T/out.out" 2>&1 </dev/null && status=0 || status=$?
    [ ! -e "$T/c/pwned" ] || fail "user $uid, $case: $command ran $(cat "$T/c/pwned"): $(output out)"
    [ "$status" != 124 ] || fail "user $uid, $case: $command does not end"
    ! grep -Eq -- "$words" "$T/out.out" || refused=$((refused + 1))
  done <<'EOT'
dtctl exec -w gpu01 -- hostname
dtctl exec -- hostname
dtctl clean --dry-run -w gpu01
dtctl clean
dtctl clean --all-jobs
dtctl resume
dtctl stop
dtctl status
dtctl add gpu02
dtctl logs
dtctl events
dtlaunch --resume .
dtlaunch --resume . --take-over
dtlaunch -n 1 --auto-resume sh -c true
EOT
  [ "$refused" -ge "$4" ] || fail "user $uid, $case: only $refused commands say why"
}
whose="belongs to .*$stranger|is writable for other users"
for uid in 0 $user; do
  say "user $uid: all of it is another user's"
  foreign whole $stranger
  nothing_runs $uid "$whose" whole 7
  say "user $uid: the pointer alone"
  foreign pointer $uid
  chown $stranger "$T/c/pointer/.dtlaunch/current.json"
  nothing_runs $uid "$whose" pointer 7
  say "user $uid: the state folder that it names"
  foreign state $uid
  chown -R $stranger "$T/c/state-state"
  nothing_runs $uid "$whose" state 7
  say "user $uid: the spec"
  foreign spec $uid
  chown $stranger "$T/c/spec/.dtlaunch/$name/spec.json"
  nothing_runs $uid "$whose" spec 7
  say "user $uid: others may write to the spec"
  foreign open $uid
  chmod 666 "$T/c/open/.dtlaunch/$name/spec.json"
  nothing_runs $uid "$whose" open 7
done
say "no job begins in another user's .dtlaunch"
mkdir -m 777 "$T/c/empty" && mkdir "$T/c/empty/.dtlaunch" && chown $stranger "$T/c/empty/.dtlaunch" && chmod 777 "$T/c/empty/.dtlaunch"
for uid in 0 $user; do
  (cd "$T/c/empty" && as $uid dtlaunch -n 1 -s 0 true) >"$T/empty.out" 2>&1 && fail "it began: $(output empty)"
  expect_output empty "$whose"
  [ -z "$(ls -A "$T/c/empty/.dtlaunch")" ] || fail "files were made there"
done
say "a file in the way is none to wait for"
for way in fifo zero; do
  foreign $way $user
  rm -f "$T/c/$way/.dtlaunch/"{current.json,lock}
  for file in current.json lock; do
    [ $way = fifo ] && mkfifo "$T/c/$way/.dtlaunch/$file" || ln -s /dev/zero "$T/c/$way/.dtlaunch/$file"
  done
  chown -h -R $user "$T/c/$way"
  nothing_runs $user 'no regular file|no plain file' $way 7
done
say "one's own is used"
foreign own 0
(cd "$T/c/own" && timeout 20 dtctl exec -- hostname) >"$T/own.out" 2>&1 || true
[ -e "$T/c/pwned" ] || fail "the test's own trap does not work: $(output own)"
rm -f "$T/c/pwned"

say "whatever the umask, nobody else writes into .dtlaunch"
mkdir "$T/group" && cd "$T/group"
(umask 002 && dtlaunch -n 1 --elastic-training-enabled --checkpoint-every 1 elastic_worker --samples 50 --epochs 3 --steps-per-epoch 2) >"$T/umask.out" 2>&1
open=$(find .dtlaunch -perm /022 ! -type l)
[ -z "$open" ] || fail "open for others: $open"
