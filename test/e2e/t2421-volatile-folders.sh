# timeout=120 cost=20
# What lies in /tmp, /run and /dev/shm is removed from a living job, as a cleaner, a logout and a reboot do it: who needs it
# makes it again, and the next supervisor finds everything.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
workers() { left_over | awk '$2 ~ /elastic_worker$/ { print $1 }' | sort; }
case=0
for gone in "$T/run/dtlaunch" '*.lock' '*.sock' control /dev/shm; do
  say "without $gone"
  mkdir "$T/case$((++case))" && cd "$T/case$case"
  run start dtlaunch -n 2 --detach --elastic-training-enabled elastic_worker --samples 200 --epochs 100000 --steps-per-epoch 5 --step-ms 20
  expect_status 0
  awaits 'epoch>=1'
  workers=$(workers)
  case $gone in
    /dev/shm) find /dev/shm -newer "$T/start.out" -name '*dt*' -delete ;;
    /*) wait_for 5 'rm -rf "$gone" 2>/dev/null' || fail "$gone cannot be removed" ;;  # the job may make a file meanwhile
    *) rm -f "$T"/run/dtlaunch/*/$gone ;;
  esac
  wait_for 10 'ls "$T"/run/dtlaunch/*/control "$T"/run/dtlaunch/*/*.lock "$T"/run/dtlaunch/*/*.sock >/dev/null 2>&1' ||
    fail "it is not made again: $(ls -R "$T/run/dtlaunch")"
  run asked dtctl status
  expect_status 0
  kill -KILL "$(supervisor)"
  wait_for 5 'run asked dtctl status; grep -q "is dead" "$T/asked.out"' || fail "status: $(output asked)"
  expect_status 3
  expect_output asked 'is dead. "dtctl resume" takes the job up again.* 300 s after its death'
  run resumed dtctl resume
  expect_status 0
  expect_output resumed 'had died; it is back'
  run resumed dtctl resume
  expect_status 0
  expect_output resumed 'lives: there is nothing to do'
  run added dtctl add localhost
  expect_status 0
  PATIENCE=30 awaits workers=3
  left=$(comm -23 <(echo "$workers") <(workers))
  [ -z "$left" ] || fail "workers have died: $left"
  run stopped dtctl stop
  expect_status 0
  expect_nothing_left
  [ -z "$(ls "$T/run/dtlaunch" 2>/dev/null)" ] || fail "files are left: $(ls -R "$T/run/dtlaunch")"
done
