# Hosts in separate network namespaces, whose links can be cut; before lib.sh:
#
#     . "$(dirname "$0")/netns.sh" && own_network "$@"
#     . "$(dirname "$0")/lib.sh"
#     net_hosts 3
#
# The test's own namespace is the master and routes between the hosts. The namespaces end with the
# test's processes.

# own_network "$@": restarts the test in a network namespace; ends it with 77 if that is impossible.
own_network() {
  local tool
  [ -z "${DT_OWN_NETWORK-}" ] || return 0
  [ "$(id -u)" = 0 ] || { echo "SKIPPED: network namespaces need root"; exit 77; }
  for tool in ip nft tc nsenter unshare sshd; do
    PATH=$PATH:/usr/sbin:/sbin command -v $tool >/dev/null || { echo "SKIPPED: no $tool here"; exit 77; }
  done
  unshare -n nft list tables >/dev/null 2>&1 || { echo "SKIPPED: no network namespace of one's own here"; exit 77; }
  export PATH=$PATH:/usr/sbin:/sbin
  exec env DT_OWN_NETWORK=1 unshare -n bash "$0" "$@"
}

# net_hosts N: hosts 10.77.1.2, 10.77.2.2, ..., each with its sshd; sets SSH_HOSTS, SSH_OPTIONS and
# SSH_ADDRESSES as ssh_hosts does. With OWN_PROCESSES=1 no host sees another one's processes, so that they share no memory.
net_hosts() {
  local k
  ip link set lo up
  echo 1 >/proc/sys/net/ipv4/ip_forward
  nft -f - <<'END'
table inet cut {
  chain from { type filter hook prerouting priority 0; }
  chain to { type filter hook postrouting priority 0; }
}
END
  mkdir -m 700 "$T/net" "$T/net/home"
  mkdir -p -m 0755 /run/sshd
  ssh-keygen -q -t ed25519 -N '' -f "$T/net/host_key"
  ssh-keygen -q -t ed25519 -N '' -f "$T/net/user_key"
  SSH_ADDRESSES=()
  SSH_HOSTS=$T/net/hosts
  for ((k = 1; k <= $1; k++)); do
    SSH_ADDRESSES+=("10.77.$k.2")
    echo "10.77.$k.2:2222" >>"$SSH_HOSTS"
    start "namespace$k" env -i unshare -n sleep 10000
    NAMESPACE[k]=$PID
    own_namespace "$PID"
    ip link add "host$k" type veth peer name eth0 netns "$PID"
    ip addr add "10.77.$k.1/24" dev "host$k"
    ip link set "host$k" up
    at "$k" ip link set lo up
    at "$k" ip addr add "10.77.$k.2/24" dev eth0
    at "$k" ip link set eth0 up
    at "$k" ip route add default via "10.77.$k.1"
    echo "[10.77.$k.2]:2222 $(cut -d' ' -f1,2 "$T/net/host_key.pub")" >>"$T/net/known_hosts"
    sshd_conf "$k" "10.77.$k.2"
    sshd_of "$k"
  done
  cat >"$T/net/ssh_config" <<END
Host 10.77.*
  Port 2222
  User root
  IdentityFile $T/net/user_key
  IdentitiesOnly yes
  UserKnownHostsFile $T/net/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
END
  SSH_OPTIONS=(--ssh-config "$T/net/ssh_config" --ssh-known-hosts strict)
}

# behind_bastion N: hosts inner1, inner2, ... behind a bastion at 10.76.0.2. The test's namespace has no
# route to them, and only the bastion knows their names. Sets SSH_HOSTS, SSH_OPTIONS and SSH_ADDRESSES;
# the bastion is host 0.
behind_bastion() {
  local k pid
  ip link set lo up
  mkdir -m 700 "$T/net" "$T/net/home"
  mkdir -p -m 0755 /run/sshd
  ssh-keygen -q -t ed25519 -N '' -f "$T/net/host_key"
  ssh-keygen -q -t ed25519 -N '' -f "$T/net/user_key"
  SSH_ADDRESSES=()
  SSH_HOSTS=$T/net/hosts
  start namespace0 env -i unshare -n -m --propagation private sleep 10000
  NAMESPACE[0]=$PID
  own_namespace "$PID"
  ip link add bastion type veth peer name eth0 netns "$PID"
  ip addr add 10.76.0.1/24 dev bastion
  ip link set bastion up
  at 0 ip link set lo up
  at 0 ip addr add 10.76.0.2/24 dev eth0
  at 0 ip link set eth0 up
  at 0 sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
  sshd_conf 0 10.76.0.2
  echo "127.0.0.1 localhost" >"$T/net/inner_names"
  for ((k = 1; k <= $1; k++)); do
    SSH_ADDRESSES+=("10.77.$k.2")
    echo "inner$k" >>"$SSH_HOSTS"
    echo "10.77.$k.2 inner$k" >>"$T/net/inner_names"
    start "namespace$k" env -i unshare -n sleep 10000
    NAMESPACE[k]=$PID
    pid=$PID
    own_namespace "$pid"
    at 0 ip link add "host$k" type veth peer name eth0 netns "$pid"
    at 0 ip addr add "10.77.$k.1/24" dev "host$k"
    at 0 ip link set "host$k" up
    at "$k" ip link set lo up
    at "$k" ip addr add "10.77.$k.2/24" dev eth0
    at "$k" ip link set eth0 up
    at "$k" ip route add default via "10.77.$k.1"
    sshd_conf "$k" "10.77.$k.2"
    sshd_of "$k"
  done
  nsenter -m -t "${NAMESPACE[0]}" mount --bind "$T/net/inner_names" /etc/hosts
  sshd_of 0
  echo "[*]:2222 $(cut -d' ' -f1,2 "$T/net/host_key.pub")" >"$T/net/known_hosts"
  cat >"$T/net/ssh_config" <<END
Host bastion
  HostName 10.76.0.2
Host inner*
  ProxyJump bastion
Host command*
  ProxyCommand ssh -F $T/net/ssh_config -W \$(echo %h | sed s/command/inner/):%p bastion
Host *
  Port 2222
  User root
  IdentityFile $T/net/user_key
  IdentitiesOnly yes
  UserKnownHostsFile $T/net/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
END
  SSH_OPTIONS=(--ssh-config "$T/net/ssh_config" --ssh-known-hosts strict)
}
own_namespace() {
  wait_for 5 '[ "$(readlink /proc/'"$1"'/ns/net)" != "$(readlink /proc/self/ns/net)" ]' || fail "no namespace"
}
sshd_conf() {  # K ADDRESS
  cat >"$T/net/sshd$1.conf" <<END
ListenAddress $2:2222
HostKey $T/net/host_key
PidFile none
AuthorizedKeysFile $T/net/user_key.pub
AuthenticationMethods publickey
UsePAM no
UseDNS no
StrictModes no
PermitRootLogin prohibit-password
SetEnv HOME=$T/net/home XDG_CACHE_HOME=$T/net/cache
END
}

# at K COMMAND...: on host K.
at() {
  local pid=${NAMESPACE[$1]}
  shift
  nsenter -n -t "$pid" "$@"
}
sshd_of() {
  # unshare itself ignores TERM
  local own=${OWN_PROCESSES:+'unshare --pid --fork --kill-child --mount-proc "$@" & trap "kill -KILL $!" TERM; wait'}
  start "sshd$1" nsenter -n -m -t "${NAMESPACE[$1]}" sh -c "${own:-exec \"\$@\"}" sshd \
    "$(command -v sshd)" -D -e -f "$T/net/sshd$1.conf"
  wait_for 10 "grep -q 'Server listening' '$T/sshd$1.out'" || fail "no sshd on host $1"
}
# vanish K: cuts the links of host K and kills its processes; none of them closes a connection.
vanish() {
  local process name
  name=$(readlink "/proc/${NAMESPACE[$1]}/ns/net")
  for process in /proc/[0-9]*; do
    [ "${process#/proc/}" = "${NAMESPACE[$1]}" ] && continue
    [ "$(readlink "$process/ns/net")" != "$name" ] || kill -KILL "${process#/proc/}"
  done
}
# cut_host K [from|to|both [RULE...]]: drops packets from host K, to it, or both, from now on; an nft RULE
# restricts this.
cut_host() {
  local k=$1 way=${2:-both}
  shift $(($# < 2 ? $# : 2))
  [ "$way" = to ] || nft add rule inet cut from ip saddr "10.77.$k.2" "$@" drop
  [ "$way" = from ] || nft add rule inet cut to ip daddr "10.77.$k.2" "$@" drop
}
# heal: every link is whole again.
heal() {
  nft flush chain inet cut from
  nft flush chain inet cut to
}
