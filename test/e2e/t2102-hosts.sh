# timeout=120
# Hosts that cannot be used are named, with the phase and the remedy; nothing is left on the others.
. "$(dirname "$0")/lib.sh"
ssh_hosts 2
mapfile -t host <"$SSH_HOSTS"

say "unreachable"
printf '%s\n127.0.0.1:9\n' "${host[0]}" >"$T/hosts"
run unreachable timeout 60 dtlaunch -n 2 -H "$T/hosts" "${SSH_OPTIONS[@]}" --start-timeout 5 -s 0 sleep 100
expect_status 65
expect_output unreachable 'ERROR 127\.0\.0\.1:9: connect to 127\.0\.0\.1 port 9: Connection refused: is sshd running there'
expect_nothing_left 10

say "one machine by two names"
printf '%s\n%s@%s\n' "${host[0]}" "$(id -un)" "${host[0]}" >"$T/hosts"
run twin timeout 60 dtlaunch -n 2 -H "$T/hosts" "${SSH_OPTIONS[@]}" --no-shared-folder -s 0 sleep 1  # how long the job lasts, not a wait
expect_status 0
expect_output twin "WARNING .* and .* are one machine: .*write one name, with slots=N"
run no_twin timeout 60 dtlaunch -n 2 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --no-shared-folder -s 0 sleep 1  # how long the job lasts, not a wait
expect_status 0
! grep -q 'are one machine' "$T/no_twin.out" || fail "two hosts are taken for one"

say "a changed host key"
ssh-keygen -q -t ed25519 -N '' -f "$T/other_key"
awk -v key="$(cut -d' ' -f2 "$T/other_key.pub")" '{ $3 = key; print }' "$T/ssh/known_hosts" >"$T/ssh/known_hosts.new"
cp "$T/ssh/known_hosts.new" "$T/ssh/known_hosts"
run changed timeout 60 dtlaunch -n 1 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --start-timeout 5 -s 0 true
expect_status 65
expect_output changed "known_hosts:[0-9]+"
expect_output changed 'ssh-keygen -f .* -R'
expect_nothing_left 10

say "a number of workers written as a port"
echo 127.0.0.1:2 >"$T/hosts"
run count timeout 60 dtlaunch -n 2 -H "$T/hosts" "${SSH_OPTIONS[@]}" --start-timeout 1 -s 0 true
expect_status 65
expect_output count 'is the port right\? If 2 workers are meant: 127\.0\.0\.1 slots=2'
