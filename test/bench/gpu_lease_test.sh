#!/usr/bin/env bash
# scripts/gpu-lease over programs with prescribed results: gpu_lease_test.sh SCRIPT
set -euo pipefail
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
export TMPDIR=$T/tmp
mkdir -p "$T/lease/bin" "$T/lease/share" "$T/tools" "$T/tmp"
cp "$1" "$T/gpu-lease"

# stub PATH VARIABLE: prints its arguments, exits with the variable's value.
stub() {
  printf '#!/bin/sh\necho "%s $*"\necho "${%s_SAYS:-done}"\n[ -z "$%s_LASTS" ] || sleep 60 # until it is killed\nexit "${%s:-0}"\n' \
    "$(basename "$1")" "$2" "$2" "$2" >"$1"
  chmod +x "$1"
}
for program in gpu_tests gpu_bench dtgpucheck dtbench dtlaunch dtctl; do stub "$T/lease/bin/$program" "${program^^}"; done
stub "$T/tools/python" TORCH
stub "$T/tools/compute-sanitizer" SANITIZER
tar -C "$T" -czf "$T/lease.tar.gz" lease

fail() { echo "$*"; cat "$T/out"; exit 1; }
# expect CODE [VARIABLE=VALUE...] [-- OPTIONS...]: runs the script.
expect() {
  local wanted=$1 code=0 variables=()
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do variables+=("$1"); shift; done
  env "${variables[@]}" PATH="$T/tools:/usr/bin:/bin" "$T/gpu-lease" run --python "$T/tools/python" --device 3 \
    --out "$T/lease-out" "${@:2}" >"$T/out" 2>&1 || code=$?
  [ $code = "$wanted" ] || fail "$*: exit code $code instead of $wanted"
  [ -z "$(ls -A "$T/tmp")" ] || fail "it left $(ls -A "$T/tmp")"
}
says() { grep -qE -- "$1" "$T/out" || fail "it does not say: $1"; }

clean="SANITIZER_SAYS===== ERROR SUMMARY: 0 errors"
few=(-- --parts "gpu_tests,memcheck,racecheck,gpu_bench,torch,dtgpucheck,kv_tcp")
expect 1 "$clean"
says '^FAIL +elastic .*it did not join or come back$'  # dtctl tells no worker
[ "$(grep -c ^FAIL "$T/out")" = 1 ] || fail "more than one part fails"
for name in gpu_tests facts eq_l1_2gpu alone_ddp l2_gpu any_script kv_ipc kv_tcp torch memcheck; do says "^PASS +$name "; done
cmp <(grep -E '^(PASS|SKIPPED|FAIL)' "$T/out") "$T/lease-out/summary.txt" || fail "summary.txt has other lines"
for name in gpu_tests torch; do tar -xOzf "$T/lease-out/logs.tar.gz" logs/$name.log >/dev/null || fail "no log of $name"; done
says '^gpu_tests --device 3 --rounds 2$'
says '^compute-sanitizer --tool racecheck --error-exitcode 99 gpu_tests --device 3$'
says '^python .*torch_optimizers.py --device cuda:3 --library .*/bin/liboptimizer_steps.so$'
says '^dtbench kv --reps 7 --device cuda:3 --server-device cuda:3 --peer copies,cpu --transport tcp$'

# Each part's failure is the script's, and no other part's.
expect 1 "$clean" GPU_TESTS=5 DTBENCH=1 GPU_BENCH=3 "${few[@]}"
says '^FAIL +gpu_tests .*exit code 5'
says '^FAIL +kv_tcp .*exit code 1'
says '^BELOW +gpu_bench'
[ "$(grep -c ^PASS "$T/out")" = 4 ] || fail "others fail, too"
expect 1 SANITIZER=99 "SANITIZER_SAYS===== ERROR SUMMARY: 2 errors" -- --parts memcheck
says '^FAIL +memcheck .*2 errors'
# A kernel that is slower than a copy is no failure.
expect 0 GPU_BENCH=3 -- --parts gpu_bench

# What hangs costs its own time; what no longer fits is skipped.
expect 1 "$clean" DTGPUCHECK_LASTS=1 -- --parts dtgpucheck,gpu_bench,kv_tcp --budget 21
says '^HANGS +dtgpucheck'
says '^SKIPPED +gpu_bench +no time left'

# Ctrl-C ends the part under way, and nothing stays.
: >"$T/out"  # which says `== dtgpucheck` of the run before
env DTGPUCHECK_LASTS=1 PATH="$T/tools:/usr/bin:/bin" "$T/gpu-lease" run --parts gpu_bench,dtgpucheck >"$T/out" 2>&1 &
for ((i = 0; i < 200; i++)); do ! grep -q '== dtgpucheck' "$T/out" || break; sleep 0.1; done # between two looks, not a wait
kill -TERM $!
for ((i = 0; i < 100; i++)); do kill -0 $! 2>/dev/null || break; sleep 0.1; done # between two looks, not a wait
! kill -0 $! 2>/dev/null || fail "it goes on after TERM"
code=0
wait $! || code=$?
[ $code = 143 ] || fail "exit code $code after TERM"
[ -z "$(ls "$T/tmp" | grep -v gpu-lease-out)" ] || fail "it left $(ls "$T/tmp")"
rm -r "$T"/tmp/*

# A missing part is skipped, and reported.
expect 0 TORCH=77 "TORCH_SAYS=SKIPPED: no PyTorch" -- --parts torch
says '^SKIPPED +torch .*SKIPPED: no PyTorch'
expect 0 SANITIZER=1 "SANITIZER_SAYS=unsupported driver" -- --parts memcheck
says '^SKIPPED +memcheck .*unsupported driver'
rm "$T/tools/compute-sanitizer"
expect 0 -- --parts racecheck
says '^SKIPPED +racecheck .*compute-sanitizer is not in PATH'
rm "$T/lease/bin/dtgpucheck"
tar -C "$T" -czf "$T/lease.tar.gz" lease
expect 0 -- --parts dtgpucheck
says '^SKIPPED +dtgpucheck +dtgpucheck is not here'
expect 1 -- --parts gpu_test
says '^FAIL +gpu_test +no such part: gpu_tests facts '

# Without a GPU there is one line.
expect 77 GPU_TESTS=77 "GPU_TESTS_SAYS=gpu_tests: SKIPPED: no CUDA device on this machine"
says '^gpu-lease: SKIPPED: no CUDA device on this machine$'
expect 2 -- --budget 1m
expect 2 -- --bogus
rm "$T/lease.tar.gz"
expect 1
says 'lease.tar.gz is missing: run the script in the folder'
# Without a build it needs nvcc.
code=0
CUDA_HOME=$T PATH=/usr/bin:/bin "$1" stage --nvcc "$T/into" >"$T/out" 2>&1 || code=$?
[ $code = 77 ] || [ -x /usr/bin/nvcc ] || fail "without nvcc: exit code $code"
code=0
"$1" stage --build "$T" "$T/into" >"$T/out" 2>&1 || code=$?
[ $code = 1 ] && says "$T/bin has no dtlaunch" || fail "without a build: exit code $code"
