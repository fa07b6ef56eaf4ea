# timeout=150 cost=30 plain
# One of three workers is slow: it has a name within 30 s, nightly at each level of the package. Equal workers, however
# slow: nobody.
. "$(dirname "$0")/lib.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
jobs=("L0" "L0 all")
! is_nightly || ! has_torch || jobs+=("L1" "L2")
for words in "${jobs[@]}"; do
  folder=${words// /-}
  mkdir "$folder"
  # shellcheck disable=SC2086  # words
  dtlaunch --detach -n 3 -s 1 --job-dir "$folder" "$PYTHON" "$DT_SOURCE/test/e2e/python/slow.py" $words >"$T/$folder.out" 2>&1
done
for words in "${jobs[@]}"; do
  folder=${words// /-}
  [ "$folder" != L0-all ] || continue
  say "$folder"
  dtctl wait --job-dir "$folder" --timeout 60s '.workers[id=1].slowest ~ slowest: ' || fail "$folder: nobody is named"
  dtctl status --job-dir "$folder" | tee "$T/$folder.status"
  grep -Eq 'balance [0-9]+ % \(worker 1 on localhost keeps 2 waiting\)' "$T/$folder.status" || fail "balance does not say it"
  [ "$(grep -c 'slowest: [2-9][0-9]' "$T/$folder.status")" = 1 ] || fail "WHY does not say it"
  dtctl why --job-dir "$folder" localhost | grep -q 'worker 1: .*slowest: ' || fail "why does not say it"
  grep -q '"event":"slow_worker".*"worker":1}' "$folder"/.dtlaunch/*/events.jsonl || fail "no event"
done
dtctl wait --job-dir L0-all --timeout 30s '.balance.share > 0.5' || fail "equal workers wait for each other"
! grep -q slow_worker L0-all/.dtlaunch/*/events.jsonl || fail "one of equal workers is named"
for words in "${jobs[@]}"; do dtctl stop --job-dir "${words// /-}" >/dev/null; done
expect_nothing_left
