#!/usr/bin/env bash
# What the object files of kvstore/compute/kernels give the linker. A level's file may give its table only: of
# a function that two files define, the linker keeps one, which would then run on every machine.
#   kernel_symbols.sh OBJECT...
set -euo pipefail

levels=0 bad=0
for object in "$@"; do
  case $object in */kernels.cpp.o) continue ;; esac
  levels=$((levels + 1))
  while read -r symbol; do
    case $symbol in *Kernels) continue ;; esac
    echo "$object: $symbol"
    bad=$((bad + 1))
  done < <(nm --extern-only --defined-only "$object" | awk '$NF ~ /^_Z/ {print $NF}' | c++filt)
done
[ $levels -gt 0 ] || { echo "no level's object given"; exit 1; }
echo "kernel_symbols: $levels levels, $bad symbols too many"
[ $bad = 0 ]
