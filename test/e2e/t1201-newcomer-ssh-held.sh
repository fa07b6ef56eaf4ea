# timeout=240 cost=50
# A newcomer whose ssh refuses, and one whose ssh accepts the connection and sends nothing.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 3
train -n 2 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --ssh-connect-timeout 2s --
mapfile -t host <"$SSH_HOSTS"
say 'refused'
"$DT_SOURCE/scripts/sshd-hosts" kill "$T/ssh" "${SSH_ADDRESSES[2]}"
held "${host[2]}" 'refused'
"$DT_SOURCE/scripts/sshd-hosts" start-one "$T/ssh" "${SSH_ADDRESSES[2]}"
joins_and_leaves "${host[2]}"
say 'hanging'
sshd=$(cat "$T/ssh/${SSH_ADDRESSES[2]}/sshd.pid")
kill -STOP "$sshd"
held "${host[2]}" 'nothing more from .* for 4'
kill -CONT "$sshd"
joins_and_leaves "${host[2]}"
[ "$(wc -l <host_worker_log)" = 4 ] || fail "not four lines in host_worker_log"
end_job
