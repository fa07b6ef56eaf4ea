# timeout=180 cost=25 schedulers
# Hosts by Open MPI's mpirun, by --rsh with ssh, and by --rsh with what enters a network namespace; and
# what is refused.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"

say "what cannot be"
run refused dtlaunch -n 1 -H /dev/null --rsh 'ssh {host}' true
expect_status 2
expect_output refused '\{command\} is missing'
run refused dtlaunch -n 1 --launcher slurm true
expect_status 2
echo h1 >"$T/h1"
run refused dtlaunch -n 1 -s 0 -H "$T/h1" --launcher command --rsh 'no-such-starter {host} {command}' true
expect_status 2
expect_output refused '^dtlaunch: no-such-starter, which reaches h1, is not in PATH'
run dry dtlaunch -n 1 -H "$T/h1" --launcher mpi --dry-run true
expect_output dry '^h1 by mpirun -np 1 --host h1 --bind-to none /bin/sh'

say "--rsh with ssh: two hosts, one joins; its ssh is killed"
new_hosts 2
config=$(sed -nE 's/^ssh_config=//p' "$T/ssh.env")
sed 's/:.*//' "$SSH_HOSTS" >"$T/hosts"
mapfile -t host <"$T/hosts"
starter_echo command "${host[0]}" "ssh -F $config {host} {command}" || fail "by ssh"
train -n 1 -H "$T/hosts" --rsh "ssh -F $config {host} {command}" --
echo "${host[1]}" >>host_worker
changed "ADDED ${host[1]}"
members 0,1
before="$(pids_of workers) $(pids_of servers)"
kill -KILL $(pgrep -f "^ssh -F $config ${host[1]} /bin/sh")
happens link_down "${host[1]}"
awaits "host ${host[1]} up"
[ "$(pids_of workers) $(pids_of servers)" = "$before" ] || fail "something was restarted"
end_job

say "mpirun"
if command -v mpirun >/dev/null; then
  if [ "$(id -u)" = 0 ]; then
    run refused dtlaunch -n 1 -s 0 -H "$T/h1" --launcher mpi true
    expect_status 2
    expect_output refused "^dtlaunch: Open MPI's mpirun refuses to run as root: run dtlaunch as another user"
  fi
  # Every address of a loopback is this machine for mpirun, and it starts nothing but a child.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  starter_echo mpi localhost || fail "by mpirun"
  echo localhost >"$T/here"
  run mpi dtlaunch -n 2 -s 0 -H "$T/here" --launcher mpi sh -c 'echo "I am $RANK"'
  expect_status 0
  expect_output mpi 'I am 1$'
  run command dtctl exec -H "$T/here" --launcher mpi --timeout 20 -- 'printf "no end of line"; exit 3'
  expect_status 3
  expect_output command '^\[localhost\] no end of line$'
  expect_nothing_left
else
  say "SKIPPED: mpirun is not installed"
fi

say "--rsh with a network namespace for each host"
if [ "$(id -u)" = 0 ] && ip netns add "dt$$a" 2>/dev/null; then
  ip -n "dt$$a" link set lo up
  echo "dt$$a" >"$T/spaces"
  run netns dtlaunch -n 1 -s 0 -H "$T/spaces" --rsh "$(command -v ip) netns exec {host} {command}" --rsh-binary \
    sh -c 'echo "links: $(ip -o link | wc -l)"'
  ip netns delete "dt$$a"
  expect_status 0
  expect_output netns 'links: 1$'
else
  say "SKIPPED: no network namespaces here"
fi
