#!/usr/bin/env bash
# gpu_bench over emulated devices, whose times mean nothing: gpu_bench_test.sh PROGRAM
set -euo pipefail
program=$1
out=$(mktemp)
trap 'rm -f "$out"' EXIT

fail() { echo "$*"; cat "$out"; exit 1; }
# expect CODES ARGUMENTS...: runs the program, which must exit with one of CODES.
expect() {
  local wanted=$1
  code=0
  shift
  "$program" "$@" >"$out" 2>&1 || code=$?
  grep -qw "$code" <<<"$wanted" || fail "$*: exit code $code instead of $wanted"
}

expect "0 3" --mib 1 --reps 1
# row NAME VERDICTS: the output has a row NAME with one of VERDICTS.
row() {
  grep -qE "^$1 +[0-9.]+ MB +[0-9.]+ ms .* x copy  ($2)$" "$out" || fail "no line of $1 that says $2"
}
for name in 'sum of 2, 1 MiB each' 'sum of 4, 1 MiB each' 'sum of 8, 1 MiB each' \
    'SGD-momentum, 1 MiB' 'AdamW, 1 MiB' '2bit decode, 1 MiB'; do
  row "$name" 'good|below'
done
for name in '2bit decode and add, 1 MiB' 'bf16 decode, 1 MiB' \
    'bf16 decode and add, 1 MiB'; do
  row "$name" -
done
# The verdicts are the exit code.
good=$(grep -c ' good$' "$out" || true)
below=$(grep -c ' below$' "$out" || true)
[ $((good + below)) = 6 ] || fail "$good + $below verdicts instead of 6"
[ $((below > 0 ? 3 : 0)) = "$code" ] || fail "exit code $code with $below that are below"
grep -qx "gpu_bench: $good of 6 reach 0.85 of the copy's rate" "$out" || fail "no sum of the verdicts"

expect 2 --mib 0
expect 2 --reps
expect 2 --speed 3
expect 77 --device 1
export DT_EMULATED_DEVICES=0
expect 77
[ "$(cat "$out")" = "gpu_bench: SKIPPED: no CUDA device on this machine" ] || fail "it does not say what is missing"
