# timeout=20 cost=1
# scripts/nightly --age: what was skipped, failed or never run is not green, an unknown commit is said to be
# one, and a commit of rows alone makes no part older.
. "$(dirname "$0")/lib.sh"
git init -q "$T/repo"
cd "$T/repo"
mkdir scripts test
cp "$DT_SOURCE/scripts/nightly" scripts
# commit [FILE]: one that changes FILE.
commit() {
  echo c >>"${1:-program}"
  git add .
  git -c user.name=t -c user.email=t@t commit -q -m c
  git rev-parse --short=10 HEAD
}
first=$(commit)
second=$(commit)
for i in $(seq 101); do commit >/dev/null; done
cat >"$T/ledger" <<L
| date | commit | cores | part | min | cpu | result |
| 2026-11-23 | $first | 2 | release | 1 | 1 | ok: 1 tests |
| 2026-11-23 | $second+ | 2 | release | 1 | 1 | ok: 1 tests |
| 2026-11-23 | $(git rev-parse HEAD) | 2 | release | 1 | 1 | FAILED |
| 2026-11-23 | $(git rev-parse HEAD) | 2 | sim | 1 | 1 | ok |
| 2026-11-23 | $first | 2 | fuzz | 1 | 1 | skipped: no clang |
| 2026-11-23 | 0123456789 | 2 | asan | 1 | 1 | ok |
L
commit test/NIGHTLY.md >/dev/null
run age scripts/nightly --age --ledger "$T/ledger" release sim fuzz asan python
expect_status 0
expect_output age '^  release: 101 commits \(WARNING: more than 100\)$'
expect_output age '^  sim: 0 commits$'
expect_output age '^  fuzz: never green$'
expect_output age '^  asan: green on 0123456789, which is not known here$'
expect_output age '^  python: never green$'

say "a ledger that is not there, and none"
run absent scripts/nightly --age --ledger "$T/absent" sim
expect_status 2
expect_output absent "cannot read the ledger $T/absent"
run none scripts/nightly --age --ledger
expect_status 2
expect_output none "ledger needs a value"
