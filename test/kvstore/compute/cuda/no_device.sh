#!/usr/bin/env bash
# Without a device each given program reports that in one line and exits with 77; none is linked to the driver.
set -euo pipefail
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for program in "$@"; do
  code=0
  CUDA_VISIBLE_DEVICES='' "$program" >"$out" 2>&1 || code=$?
  cat "$out"
  [ $code = 77 ] || { echo "exit code $code instead of 77"; exit 1; }
  [ "$(wc -l <"$out")" = 1 ] || { echo "not one line"; exit 1; }
  grep -q 'SKIPPED: no CUDA device' "$out" || { echo "it does not say what is missing"; exit 1; }
  if readelf -d "$program" | grep -E 'NEEDED.*lib(cuda|nvidia)'; then
    echo "linked to what a machine without a GPU lacks"
    exit 1
  fi
done
