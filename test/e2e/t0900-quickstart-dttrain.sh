# timeout=300 cost=85 nightly needs=dttrain
# The README's promise on sshd hosts: a third one joins and leaves while LeNet trains, and no process is left running. Another
# program on the hosts' addresses, such as a second quickstart, is not mistaken for this one's.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/quickstart.sh"
starts_quickstart --ssh --with dttrain --generated --samples 3500 --epochs 20
start stranger python3 -c 'import signal, socket
held = socket.create_server(("127.0.0.2", 0))
signal.pause()'
finished quickstart "$QUICKSTART" 60
ends
expect_output quickstart '^0 ADDED 127\.0\.0\.4 [0-9]{19}$'
expect_output quickstart '^1 REMOVED 127\.0\.0\.4 [0-9]{19}$'
expect_output quickstart '^epoch [0-9]+: accuracy (1|0\.9)[0-9.]*, 3 workers, '
expect_output quickstart '^processes: none$'
expect_output quickstart '^listening ports: none of ([5-9]|[0-9]{2}) '
! command -v gnuplot >/dev/null || [ -s "$WORK/throughput.svg" ] || fail "no picture"
for target in dt_wheel dttrain; do grep -qw "$target" "$T/built" || fail "quickstart does not build $target"; done
