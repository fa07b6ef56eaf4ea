# What shell scripts here and test/e2e/lib.sh share. Sourced.

# alive PID: neither gone nor a zombie. Called in loops, so it starts no process.
alive() {
  local key="" state=""  # the process may end between open and read
  { while read -r key state _ && [ "$key" != State: ]; do :; done; } 2>/dev/null <"/proc/$1/status" || return 1
  [ "$key" = State: ] && [[ $state != [ZX] ]]
}

nap() { sleep 0.1; }

# wait_until SECONDS 'CONDITION': until the shell condition holds; false at the deadline. Naps between two looks.
wait_until() {
  local until=$((SECONDS + $1))
  until eval "$2"; do
    [ $SECONDS -lt $until ] || return 1
    nap
  done
}
