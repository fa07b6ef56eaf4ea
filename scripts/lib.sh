# Functions of the shell scripts here and of test/e2e/lib.sh. Sourced.

# alive PID: whether it exists and is no zombie. Called in loops, so it starts no process.
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
