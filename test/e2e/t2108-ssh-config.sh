# timeout=120
# Real logins by ssh configs with tokens, variables and quotes: dtlaunch is let in, or not, where OpenSSH's client is.
. "$(dirname "$0")/lib.sh"
ssh_hosts 1
ssh-agent -a "$T/agent" >"$T/agent.env"
. "$T/agent.env" >/dev/null
_pids+=("$SSH_AGENT_PID")
ssh-add -q "$T/ssh/user_key"
unset SSH_AUTH_SOCK
export T D=$T/ssh
key=$(cut -d' ' -f1,2 "$D/host_key.pub") address=${SSH_ADDRESSES[0]} port=$(<"$D/port")
ssh-keygen -q -t ed25519 -N '' -f "$T/other"
mkdir known changed
printf '%s\n' "n1 $key" "[$address]:$port $key" >known/n1
printf '%s\n' "n1 $(cut -d' ' -f1,2 "$T/other.pub")" "[$address]:$port $(cut -d' ' -f1,2 "$T/other.pub")" >changed/n1
cp "$D/user_key.pub" shown
echo n1 >hosts

# same NAME in|out LINE...: both are let in, or both are not, by a config of these lines. Some lines are the
# same in all: key, known hosts, strictness, each unless it is among the LINEs.
same() {
  local name=$1 verdict=$2 theirs=in line
  shift 2
  printf 'Host n1\n HostName %s\n Port %s\n GlobalKnownHostsFile /dev/null\n' "$address" "$port" >"$name"
  printf ' %s\n' "$@" >>"$name"
  for line in 'StrictHostKeyChecking yes' "UserKnownHostsFile $D/known_hosts" "IdentityFile $D/user_key"; do
    grep -q " ${line%% *}" "$name" || printf ' %s\n' "$line" >>"$name"
  done
  timeout 20 ssh -F "$name" -o BatchMode=yes n1 true </dev/null >"$T/$name.ssh" 2>&1 || theirs=out
  [ "$theirs" = "$verdict" ] || fail "$name: ssh is $theirs: $(<"$T/$name.ssh")"
  run "$name" dtlaunch --check quick -H hosts --ssh-config "$PWD/$name" true
  if [ "$verdict" = in ]; then
    [ "$STATUS" = 0 ] || fail "$name: ssh is let in, dtlaunch ends with $STATUS"
  else
    [ "$STATUS" != 0 ] || fail "$name: ssh is refused, dtlaunch is let in"
  fi
}

say "variables, tokens, quotes"
same agent-variable in 'IdentityFile /dev/null' 'IdentityAgent ${T}/agent'
same key-variable in 'IdentityFile ${D}/user_key' 'IdentitiesOnly yes'
same known-token in "UserKnownHostsFile $PWD/known/%k"
same known-variable in 'UserKnownHostsFile ${D}/known_hosts'
same single-quotes in "IdentityFile '$D/user_key'"
same public-key in "IdentityFile $PWD/shown" 'IdentitiesOnly yes' "IdentityAgent $T/agent"

say "another key is known of the host"
same changed-key out "UserKnownHostsFile $PWD/changed/%k" 'StrictHostKeyChecking accept-new'
expect_output changed-key 'is not the one in .*/changed/n1:'
[ -z "$(find . -name '*%k*')" ] || fail "a file named by a token was written"

say "what ssh refuses to read is refused with its place"
same unknown-token out 'IdentityFile /k/%x'
expect_output unknown-token 'unknown-token:5: /k/%x: %x is not known here'
same unset out 'IdentityFile ${DT_NOT_SET}/k'
expect_output unset 'the variable DT_NOT_SET is not set'
same open-quote out 'IdentityFile "/k'
expect_output open-quote 'open-quote:5: identityfile: a quote \("\) is not closed'
