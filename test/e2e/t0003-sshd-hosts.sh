# timeout=60
# The hosts of the other tests are real, separate, and removed when stopped.
. "$(dirname "$0")/lib.sh"
ssh_hosts 2
[ ${#SSH_ADDRESSES[@]} = 2 ] || fail "asked for 2 hosts, got ${SSH_ADDRESSES[*]}"
for address in "${SSH_ADDRESSES[@]}"; do
  seen=$(ssh -F "$T/ssh/ssh_config" "$address" 'echo $DT_SSHD_HOST') || fail "no login on $address"
  [ "$seen" = "$address" ] || fail "$address answers as $seen"
done
"$DT_SOURCE/scripts/sshd-hosts" kill "$T/ssh" "${SSH_ADDRESSES[1]}"
ssh -F "$T/ssh/ssh_config" "${SSH_ADDRESSES[1]}" true 2>/dev/null && fail "a killed host still answers"
ssh -F "$T/ssh/ssh_config" "${SSH_ADDRESSES[0]}" true || fail "its neighbour was killed too"
"$DT_SOURCE/scripts/sshd-hosts" stop "$T/ssh"
[ -z "$(left_over)" ] || fail "left over: $(left_over)"
