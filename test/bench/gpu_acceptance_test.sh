#!/usr/bin/env bash
# scripts/gpu-acceptance over programs with prescribed results: gpu_acceptance_test.sh SCRIPT
set -euo pipefail
script=$1
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
export TMPDIR=$T/tmp
mkdir -p "$T/build/bin" "$T/tools" "$T/tmp"

# stub PATH VARIABLE: prints its arguments, exits with the variable's value.
stub() {
  printf '#!/bin/sh\necho "%s $*"\necho "${%s_SAYS:-done}"\nexit "${%s:-0}"\n' "$(basename "$1")" "$2" "$2" >"$1"
  chmod +x "$1"
}
for program in gpu_tests gpu_bench dtgpucheck dtbench; do stub "$T/build/bin/$program" "${program^^}"; done
stub "$T/tools/python" TORCH
stub "$T/tools/compute-sanitizer" SANITIZER

fail() { echo "$*"; cat "$T/out"; exit 1; }
# expect CODE [VARIABLE=VALUE...]: runs the script on the build.
expect() {
  local wanted=$1 code=0
  shift
  env "$@" PATH="$T/tools:/usr/bin:/bin" "$script" --build "$T/build" --python "$T/tools/python" --device 3 \
    >"$T/out" 2>&1 || code=$?
  [ $code = "$wanted" ] || fail "$*: exit code $code instead of $wanted"
}
says() { grep -qE -- "$1" "$T/out" || fail "it does not say: $1"; }

clean="SANITIZER_SAYS===== ERROR SUMMARY: 0 errors"
expect 0 "$clean"
for name in gpu_tests memcheck racecheck gpu_bench torch dtgpucheck dtbench dtbench_tcp; do says "^PASS +$name"; done
says '^gpu_tests --device 3 --rounds 5$'
says '^compute-sanitizer --tool racecheck --error-exitcode 99 .*gpu_tests --device 3$'
says '^python .*torch_optimizers.py --device cuda:3 --library .*/build/bin/liboptimizer_steps.so$'
says '^dtbench kv --device cuda:3 --server-device cuda:3 --peer copies,cpu$'
says '^dtbench kv .* --peer copies,cpu --transport tcp$'

# Each part's failure is the script's.
for name in gpu_tests gpu_bench torch dtgpucheck; do
  expect 1 "$clean" "${name^^}=3"
  says "^FAIL +$name +exit code 3"
  [ "$(grep -c ^PASS "$T/out")" = 7 ] || fail "$name fails, and not it alone"
done
expect 1 "$clean" DTBENCH=1
says '^FAIL +dtbench +exit code 1'
says '^FAIL +dtbench_tcp +exit code 1'
expect 1 SANITIZER=99 "SANITIZER_SAYS===== ERROR SUMMARY: 2 errors"
says '^FAIL +memcheck .*2 errors'
expect 1 "$clean" SANITIZER=1
says '^FAIL +racecheck'

# A missing part is skipped, and reported.
expect 0 "$clean" TORCH=77 "TORCH_SAYS=SKIPPED: no PyTorch"
says '^SKIPPED +torch +SKIPPED: no PyTorch'
expect 0 SANITIZER=1 "SANITIZER_SAYS=unsupported driver"
says '^SKIPPED +memcheck +it does not work here: unsupported driver'
rm "$T/tools/compute-sanitizer"
expect 0
says '^SKIPPED +racecheck +compute-sanitizer is not in PATH'

# Without a GPU there is one line, and no file stays.
rm -rf "$T"/tmp/*
expect 77 GPU_TESTS=77 "GPU_TESTS_SAYS=gpu_tests: SKIPPED: no CUDA device on this machine"
says '^gpu-acceptance: SKIPPED: no CUDA device on this machine$'
[ -z "$(ls -A "$T/tmp")" ] || fail "it left $(ls -A "$T/tmp")"
rm "$T/build/bin/gpu_bench"
expect 77
says 'SKIPPED: .*/gpu_bench is missing: the build has no CUDA'
# Without a build it needs nvcc.
code=0
CUDA_HOME=$T PATH=/usr/bin:/bin "$script" >"$T/out" 2>&1 || code=$?
[ $code = 77 ] || [ -x /usr/bin/nvcc ] || fail "without nvcc: exit code $code"
for words in --bogus --build; do
  code=0
  "$script" $words >"$T/out" 2>&1 || code=$?
  [ $code = 2 ] || fail "$words: exit code $code instead of 2"
done
