# timeout=120 cost=20
# An activated Python environment is used over ssh by the hosts that have it. One line names those that lack it, also in --check.
. "$(dirname "$0")/netns.sh" && own_network "$@"
. "$(dirname "$0")/lib.sh"
net_hosts 2
/usr/bin/python3 -m venv --without-pip "$JOB/venv" || skip "no venv"
# hides K: host K begins again, and has no environment there.
hides() {
  kill "${_pids[2 * $1 - 1]}"
  wait_for 5 "! alive ${_pids[2 * $1 - 1]}" || fail "sshd of host $1 does not end"
  start "sshd$1" nsenter -n -t "${NAMESPACE[$1]}" unshare -m --propagation private \
    sh -c "mount -t tmpfs none $JOB/venv && exec $(command -v sshd) -D -e -f $T/net/sshd$1.conf"
  wait_for 10 "grep -q 'Server listening' '$T/sshd$1.out'" || fail "no sshd on host $1"
}
# job NAME OPTIONS...: each worker prints where its Python is.
activated() { VIRTUAL_ENV=$JOB/venv PATH=$JOB/venv/bin:$PATH "$@"; }
job() { activated run "$1" dtlaunch -n 2 -s 0 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" "${@:2}" python3 -c '
import os, sys
print("in", sys.prefix, os.environ.get("VIRTUAL_ENV"), os.environ["PATH"].split(":")[0])'; }
# are NAME N: so many of its workers had the environment.
are() { [ "$(grep -c "in $JOB/venv $JOB/venv $JOB/venv/bin$" "$T/$1.out")" = "$2" ] || fail "not $2 workers of $1 had it"; }
warned() { grep -E 'WARN.* python3 is ' "$T/$1.out" || true; }

say "there"
job there
expect_status 0
are there 2
[ -z "$(warned there)" ] || fail "a warning without a reason"
activated run check dtlaunch --check quick -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" python3
expect_status 0
! grep -q 'venv/bin/python3 here' "$T/check.out" || fail "a remark without a reason"
job path --env PATH=/usr/bin:/bin
expect_status 0
are path 0
[ -z "$(warned path)" ] || fail "--env PATH does not win"

say "half of the hosts"
hides 2
job half
expect_status 0
are half 1
expect_output half 'in /usr None '
lacks="python3 is $JOB/venv/bin/python3 here, which is not on"
[ "$(warned half | wc -l)" = 1 ] || fail "not one warning"
expect_output half "$lacks 10.77.2.2:2222: put the environment on a shared volume, or write the path, or --env PATH"
activated run check dtlaunch --check quick -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" python3
expect_output check 'WARN command 10.77.2.2:2222: python3 is .*/venv/bin/python3 here and /usr/bin/python3 there'

say "not there"
hides 1
job none
expect_status 0
are none 0
[ "$(warned none | wc -l)" = 1 ] || fail "not one warning"
expect_output none "$lacks 10.77.\[1-2\].2:2222: "
expect_nothing_left
