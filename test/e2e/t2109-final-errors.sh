# timeout=120
# What waiting cannot mend ends the launch at once, in one message, with two logins at most; an added host is left for a minute.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 3
mapfile -t host <"$SSH_HOSTS"
address=("${SSH_ADDRESSES[@]}")
ssh-keygen -q -t ed25519 -N '' -f "$T/other_key"
# The second host refuses the key, the third has another host key than the one that is known.
awk -v name="[${address[2]}]" -v key="$(cut -d' ' -f2 "$T/other_key.pub")" 'index($1, name) == 1 { $3 = key } { print }' \
  "$T/ssh/known_hosts" >"$T/ssh/known_hosts.new"
mv "$T/ssh/known_hosts.new" "$T/ssh/known_hosts"
{
  printf 'Host %s\n IdentitiesOnly yes\n IdentityFile %s\nHost * !%s\n IdentityFile %s\nHost *\n' \
    "${address[1]}" "$T/other_key" "${address[1]}" "$T/ssh/user_key"
  grep -v IdentityFile "$T/ssh/ssh_config"
} >"$T/config"
connections() { grep -c 'Connection from' "$T/ssh/${1%:*}/log" || true; }

say "at the launch"
printf '%s\n' "${host[@]}" no-such-host.invalid >"$T/hosts"
before=("$(connections "${host[1]}")" "$(connections "${host[2]}")")
begin=$SECONDS
run launch timeout 60 dtlaunch -n 4 -H "$T/hosts" --ssh-config "$T/config" -s 0 sleep 100
took=$((SECONDS - begin))
expect_status 65
[ $took -le 15 ] || fail "it took $took s"
[ "$(output launch | grep -c 'hosts of the initial launch failed')" = 1 ] || fail "not one message"
expect_output launch 'ERROR 3 hosts of the initial launch failed:'
expect_output launch '^  no-such-host.invalid: resolve: .*is the name right'
expect_output launch "^  ${host[1]}: authentication: user .* was refused; tried $T/other_key: is the public key"
expect_output launch "^  ${host[2]}: host key: .* is not the one in .*known_hosts:[0-9]+.*ssh-keygen -f"
for i in 1 2; do
  made=$(($(connections "${host[i]}") - before[i - 1]))
  [ $made -ge 1 ] && [ $made -le 2 ] || fail "$made connections to ${host[i]}"
done
expect_nothing_left 10

say "among the added hosts"
echo "${host[0]}" >"$T/one"
train -n 1 -H "$T/one" --ssh-config "$T/config" --
before=$(connections "${host[1]}")
printf '%s\n' "${host[1]}" no-such-host.invalid >>host_worker
happens host_failed 'no-such-host.invalid: resolve: .*; try 2 in 60.0 s'
happens host_failed "${host[1]}: authentication: .*; try 2 in 60.0 s"
# Its line written anew has it tried at once.
sed -i '/no-such-host/d' host_worker
awaits ".file.accepted=${host[0]},${host[1]}"
echo no-such-host.invalid >>host_worker
happens host_failed 'no-such-host.invalid: resolve: .*; try 2 in 60.0 s' 2
some_epochs 2
made=$(($(connections "${host[1]}") - before))
[ $made = 1 ] || fail "$made connections to the added host"
end_job
