# timeout=30
# --dry-run shows which process would run where, with which environment, and changes nothing.
. "$(dirname "$0")/lib.sh"
printf 'u@node[1-2]:2222 slots=2\r\n\n  spare # later\n' >hosts
run plan dtlaunch -n 3 -H hosts --elastic-training-enabled --env 'GREETING=it'\''s me' --dry-run \
  train_cmd --name 'a b' -n 7
expect_status 0
expect_output plan "^server 0 +u@node1:2222  dtserver"
expect_output plan "^server 2 +spare  dtserver"
expect_output plan "^worker 0 +u@node1:2222  train_cmd --name 'a b' -n 7$"
expect_output plan "^worker 2 +spare  "
expect_output plan "^  GREETING='it'.+'s me'$"
expect_output plan "^  ELASTIC_TRAINING_ENABLED=1$"
expect_output plan "over ssh, elastic"
[ "$(ls -A)" = hosts ] || fail "the job folder was touched: $(ls -A)"
[ -z "$(find "$T/state" "$T/run" -mindepth 1)" ] || fail "state was written"
# Completion knows the options, and what follows them, from --help. dtlaunch prints it, with dtctl's.
dtlaunch --completion bash >"$T/completion"
cat "$DT_SOURCE"/packaging/completions/{dtlaunch,dtctl} | cmp - "$T/completion" || fail "not the files that are installed"
. "$T/completion"
completes() {  # EXPECTED WORD BEFORE
  COMPREPLY=()
  _dtlaunch dtlaunch "$2" "$3" || true  # compgen fails where it finds nothing
  [ "${COMPREPLY[*]}" = "$1" ] || fail "completion of '$2' after $3: ${COMPREPLY[*]}"
}
completes 'auto tcp shm' '' --transport
completes hosts '' -H
completes --num-workers --num-w dtlaunch
completes True Tr --elastic-training-enabled
rows=$(dtlaunch --manual | sed 's/\\-/-/g' | sed -nE '/^\.TP$/{n; s/^(\\fB-.\\fR, )?\\fB(--[a-z-]+)\\fR.*/\2/p}')
[ "$(wc -w <<<"$rows")" -gt 60 ] || fail "the manual's rows: $rows"
completes "$(xargs <<<"$rows")" -- dtlaunch
# dtctl completes its commands, and of each its own options.
dtctl_completes() {  # EXPECTED WORD BEFORE WORDS...
  COMPREPLY=() COMP_WORDS=("${@:4}" "$2") COMP_CWORD=$(($# - 3))
  _dtctl dtctl "$2" "$3" || true
  [ "${COMPREPLY[*]}" = "$1" ] || fail "completion of '${COMP_WORDS[*]}': ${COMPREPLY[*]}"
}
rows() { dtctl "$@" --help | sed -nE 's/^  (-. \[ )?(--[a-z][a-z-]+).*/\2/p' | xargs; }
commands=$(dtctl --help | sed -nE 's/^  ([a-z]+) .*/\1/p' | xargs)
[ "$(wc -w <<<"$commands")" = 18 ] || fail "the commands: $commands"
dtctl_completes "$commands" '' dtctl dtctl
dtctl_completes 'status stop' st dtctl dtctl
dtctl_completes '--job-dir --help' -- dtctl dtctl
dtctl_completes '--json --watch --all --job-dir --help' -- . dtctl --job-dir . status
for command in $commands; do
  dtctl_completes "$(rows $command)" -- $command dtctl $command
done
dtctl_completes '' -- -- dtctl exec --
