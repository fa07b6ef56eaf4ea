# timeout=240 cost=25 alone
# Workers that print much at once: every log is whole, byte for byte, however hosts are reached; a link that breaks
# meanwhile changes nothing.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
. "$(dirname "$0")/flood.sh"
flood local
ssh_hosts 3
flood ssh -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}"
sed 's/:.*//' "$SSH_HOSTS" >"$T/hosts"
rsh="ssh -F $(sed -nE 's/^ssh_config=//p' "$T/ssh.env") {host} {command}"
flood rsh -H "$T/hosts" --rsh "$rsh"
flood binary -H "$T/hosts" --rsh "$rsh" --rsh-binary

say 'links break while spools are full: the volume takes 1.5 MB/s'
LINES=36000  # Worker 0's 7.4 MB fit into its spool: a link may be away for as long as it likes.
# A worker lasts until its link broke.
cat >"$T/held" <<'EOF'
#!/bin/sh
"${0%held}flood"
until [ -e "${0%held}broken" ]; do sleep 0.1; done  # how long it lasts, not a wait
EOF
chmod +x "$T/held"
LD_PRELOAD=$DT_BUILD/test/slow_open/slow_open.so DT_SLOW_KB_PER_S=1500 \
  start cut dtlaunch -n 4 -s 0 --dead-after 30s --quiet --env LINES -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" "$T/held"
job=$PID
awaits --start '.volume.queue_bytes>1000000'
for host in 0 1 2; do
  "$DT_SOURCE/scripts/sshd-hosts" kill "$T/ssh" "${SSH_ADDRESSES[host]}"
  "$DT_SOURCE/scripts/sshd-hosts" start-one "$T/ssh" "${SSH_ADDRESSES[host]}"
done
happens link_down . 3
touch "$T/broken"
finished cut "$job" 60
expect_status 0
whole 4
expect_nothing_left
