# timeout=30
# A wrong command line or hosts file starts nothing, names culprit and remedy, and ends with 2.
. "$(dirname "$0")/lib.sh"
printf 'a slots=2\nb\n' >hosts
printf 'a\nb\nc slots=two\n' >bad
printf '# nothing\n' >none
: >plain

# refused 'EXPECTED' WORD...
refused() {
  local expected=$1
  shift
  run refused dtlaunch "$@"
  [ "$STATUS" = 2 ] || fail "exit status $STATUS, expected 2, of: dtlaunch $*"
  [ "$(wc -l <"$T/refused.out")" = 1 ] || fail "more than one line from: dtlaunch $*"
  expect_output refused "$expected"
}

refused 'unknown option --host-file; did you mean --hostfile\?' -n 1 --host-file hosts true
refused 'unknown option --elastic-training; did you mean --elastic-training-enabled\?' --elastic-training true
refused '^dtlaunch: unknown option --foo; see dtlaunch --help$' --foo x
refused '-n is missing' true
refused 'num-workers 0: a number 1 to 65536' -n 0 true
refused 'the command to run is missing' -n 1
refused 'hosts: 4 workers were asked for but the hosts have 3 slots' -n 4 -H hosts true
refused 'bad:3:9: "two" is no number of slots' -n 1 -H bad true
refused 'none names no host' -n 1 -H none true
refused 'hosts file gone: No such file or directory' -n 1 -H gone true
refused 'hosts file \.: it is a folder' -n 1 -H . true
refused 'job folder .*/nowhere: there is no such folder' -n 1 --job-dir nowhere true
refused 'job folder .*/plain: there is no such folder' -n 1 --job-dir plain true
refused 'sync-dst-dir /d copies the folder to other hosts, .*: name others with -H' -n 1 --sync-dst-dir /d true
refused 'UNSET_HERE is not set here' -n 1 --env UNSET_HERE true
echo 'print("hello")' >train.py
STATUS=0
dtlaunch -n 1 -s 0 python3 - <train.py >"$T/input.out" 2>&1 || STATUS=$?
expect_status 2
expect_output input 'no worker gets dtlaunch.s standard input .*: instead of "-" give the name of a file'
if [ "$(id -u)" != 0 ]; then
  chmod 000 hosts
  refused 'hosts file hosts: Permission denied' -n 1 -H hosts true
fi

run bare dtlaunch
expect_status 2
expect_output bare '^dtlaunch: the command to run is missing'
run help dtlaunch --help
expect_status 0
expect_output help 'Exit codes'
[ -z "$(find "$T/state" "$T/run" -type f)" ] || fail "a refusal left files behind"

say "hosts and programs that were meant otherwise"
run list dtlaunch -n 1 -H h1,h2 true
expect_status 2
expect_output list 'hosts file h1,h2: -H names a file: one host a line there'
printf 'print(1)\n' >train.py
for name in train.py ./train.py; do
  run python dtlaunch -n 1 -s 0 $name
  expect_output python 'train.py is no program on host .*: write python3 .*train.py'
done
rm -rf train.py .dtlaunch
run function env 'BASH_FUNC_ml%%=() { :; }' dtlaunch -n 1 -s 0 --env 'BASH_FUNC_ml%%' true
expect_status 0
rm -rf .dtlaunch

say "folders of the master"
nowhere() {
  run nowhere env -u XDG_STATE_HOME "$@" dtlaunch -n 1 -s 0 true
  expect_status 2
}
nowhere HOME=/nonexistent
expect_output nowhere 'HOME says where the journals of running jobs lie: /nonexistent is no folder'
for variable in XDG_STATE_HOME XDG_RUNTIME_DIR; do
  run relative env "$variable=relative" dtlaunch -n 1 -s 0 true
  expect_status 2
  expect_output relative "^dtlaunch: $variable says where .*: relative/dtlaunch is no absolute path; let $variable name"
  [ ! -e relative ] || fail "a folder was made"
done
if [ "$(id -u)" = 0 ]; then
  nowhere HOME=/proc  # no folder can be made there, although root may write it
  expect_output nowhere 'HOME says where the journals of running jobs lie: make folder'
  # A user whose home is not to be written, as that of a random uid.
  mkdir -m 755 "$T/closed"
  mkdir -m 700 "$T/theirs" "$T/their-run"
  chown 65534 "$T/theirs" "$T/their-run"
  chmod 711 "$T"
  run closed setpriv --reuid 65534 --regid 65534 --clear-groups env -u XDG_STATE_HOME -C "$T/theirs" HOME="$T/closed" \
    XDG_RUNTIME_DIR="$T/their-run" "$DT_BIN/dtlaunch" -n 1 -s 0 true
  expect_status 0
  expect_output closed 'the journal lies in /var/tmp/dtlaunch-65534: .*/closed is not to be written'
  rm -rf /var/tmp/dtlaunch-65534
  mkdir "$T/others"
  chown 65534 "$T/others"
  run others env XDG_RUNTIME_DIR="$T/others" dtlaunch -n 1 -s 0 true
  expect_status 0
  expect_output others 'the sockets lie in /tmp/dtlaunch-0: XDG_RUNTIME_DIR \(.*\) belongs to another user'
fi
long=$T/$(printf 'x%.0s' {1..100})
mkdir -m 700 "$long"
run long env XDG_RUNTIME_DIR="$long" dtlaunch -n 1 -s 0 true
expect_status 0
expect_output long 'is too long for them, whose paths have at most 107 characters'

say "a present folder that is not there any more"
mkdir removed && cd removed && rmdir ../removed
for words in 'dtlaunch -n 1 true' 'dtctl status' 'dtctl exec -- true'; do
  run removed $words
  expect_status 2
  expect_output removed ': the present folder has been removed: cd into another one$'
done
run elsewhere dtctl --job-dir "$JOB" status
expect_status 3
cd "$JOB"

say "standard input"
echo hello | dtlaunch -n 1 -s 0 sh -c 'cat; echo "read nothing from $0"' -- >"$T/input.out" 2>&1 || fail "$(output input)"
expect_output input 'localhost\] read nothing'
! grep -q hello "$T/input.out" || fail "a worker got dtlaunch's input"
run input dtlaunch -n 1 -s 0 echo -  # of /dev/null nothing is expected
expect_status 0
