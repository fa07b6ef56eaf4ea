# Functions for scripts that try something in another Debian system, made by debootstrap. Sourced, after `die`.

# needs_for_root: dies, with the remedy, where such a system cannot be made and entered.
needs_for_root() {
  local tool
  [ "$(id -u)" = 0 ] || die "root is needed to make and enter another system"
  for tool in debootstrap unshare chroot git; do
    command -v $tool >/dev/null || die "$tool is missing: apt-get install debootstrap util-linux git"
  done
}

# make_root SUITE DIR [VARIANT]: a system of that release, with apt set up, in a new or empty folder. By default the smallest
# one, minbase; "-" is what debootstrap itself takes for a system, with systemd.
make_root() {
  local suite=$1 dir=$2 sources mirror
  # This machine's own mirror, if configured.
  sources=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null || true)
  mirror=$(grep -E '^(URIs:|deb )' <<<"$sources" | grep -oE '(https?|file)://[^ ]*/debian/?( |$)' | head -n 1 | tr -d ' ' || true)
  mirror=${mirror:-http://deb.debian.org/debian}
  echo "== debootstrap $suite from $mirror into $dir"
  debootstrap --variant="${3:-minbase}" "$suite" "$dir" "$mirror" >"$dir.debootstrap.log" 2>&1 || {
    tail -n 20 "$dir.debootstrap.log" >&2
    die "debootstrap failed; its log is $dir.debootstrap.log"
  }
  rm -f "$dir.debootstrap.log"
  printf 'deb %s %s main\n' "$mirror" "$suite" "$mirror" "$suite-updates" >"$dir/etc/apt/sources.list"
  cp /etc/resolv.conf /etc/hosts "$dir/etc/"
  cp /etc/apt/apt.conf.d/*proxy* "$dir/etc/apt/apt.conf.d/" 2>/dev/null || true
}

# mount_root DIR: what processes need there. In a mount and a pid namespace of the caller's own (unshare --mount
# --pid --fork --kill-child), which take mounts and processes along when they end.
mount_root() {
  local dir=$1 node
  mount --make-rprivate /
  mount -t proc proc "$dir/proc"
  mount -t sysfs -o ro sysfs "$dir/sys"
  mount -t tmpfs -o mode=755 tmpfs "$dir/dev"
  for node in null zero full random urandom tty; do
    : >"$dir/dev/$node"
    mount --bind "/dev/$node" "$dir/dev/$node"
  done
  ln -s /proc/self/fd "$dir/dev/fd"
  ln -s /proc/self/fd/0 "$dir/dev/stdin"
  ln -s /proc/self/fd/1 "$dir/dev/stdout"
  ln -s /proc/self/fd/2 "$dir/dev/stderr"
  mkdir "$dir/dev/shm" "$dir/dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$dir/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$dir/dev/pts"
  ln -s pts/ptmx "$dir/dev/ptmx"
}

# in_root DIR COMMAND...: there, with the environment of a new login.
in_root() {
  local dir=$1
  shift
  chroot "$dir" /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    http_proxy="${http_proxy-}" https_proxy="${https_proxy-}" no_proxy="${no_proxy-}" "$@" </dev/null
}
