#!/usr/bin/env bash
# The programs that dtlaunch copies to hosts, and libdtkv, require of a host only glibc 2.34 (Ubuntu
# 22.04, RHEL 9, Amazon Linux 2023) and no library that a host with an sshd may lack. libdtkv exports
# only its C functions.
#   host_programs.sh FILE...
set -euo pipefail
export LC_ALL=C
newest=2.34
bad=0
complain() {
  echo "$*"
  bad=$((bad + 1))
}
for file in "$@"; do
  [ -s "$file" ] || { echo "$file is not there"; exit 1; }
  while read -r version symbol; do
    [ "$(printf '%s\n' "$newest" "$version" | sort -V | tail -n 1)" = "$newest" ] ||
      complain "$file needs $symbol of GLIBC_$version"
  done < <(objdump -T "$file" | sed -nE 's/.*\(?GLIBC_([0-9.]+)\)? +(.*)/\1 \2/p')
  while read -r library; do
    case $library in
      libc.so.6 | libm.so.6 | libgcc_s.so.1 | libcrypto.so.3 | ld-linux*) ;;
      *) complain "$file needs $library" ;;
    esac
  done < <(readelf -d "$file" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
  case $file in
    *.so*)
      while read -r symbol; do
        complain "$file exports $symbol"
      done < <(nm -D --defined-only "$file" | awk '$NF !~ /^dtkv_/ {print $NF}')
      ;;
  esac
done
echo "host_programs: $# files, $bad complaints"
[ $bad = 0 ]
