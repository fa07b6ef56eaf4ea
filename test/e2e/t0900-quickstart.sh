# timeout=300 cost=85 needs=dttrain
# The README's promise: a third host joins and leaves while LeNet trains, and no process is left running. Another
# program on the hosts' addresses, such as a second quickstart, is not mistaken for this one's.
. "$(dirname "$0")/lib.sh"
[ "$DT_BUILD" = "$DT_SOURCE/build/$(basename "$DT_BUILD")" ] || skip "quickstart knows builds under build/ only"
unset XDG_RUNTIME_DIR XDG_STATE_HOME XDG_CACHE_HOME
# All is built: cmake only notes what quickstart asks it for.
mkdir cmake
printf '#!/bin/sh\necho "$@" >>"%s"\n' "$T/built" >cmake/cmake
chmod +x cmake/cmake
PATH=$PWD/cmake:$PATH start quickstart "$DT_SOURCE/scripts/quickstart" --no-install --preset "$(basename "$DT_BUILD")" --generated --samples 3500 --epochs 8
quickstart=$PID
wait_for 60 "grep -q '^== They train' '$T/quickstart.out'" || fail "quickstart: $(output quickstart)"
start stranger python3 -c 'import signal, socket
held = socket.create_server(("127.0.0.2", 0))
signal.pause()'
finished quickstart "$quickstart" 60
work=$(sed -n 's/^console *\(.*\)\/console.log$/\1/p' "$T/quickstart.out")
# Kept by quickstart for people; here only when it failed.
[ "$STATUS" != 0 ] || [ -z "$work" ] || rm -rf "$work"
[ "$STATUS" = 0 ] || fail "exit status $STATUS: $(output quickstart)"
expect_output quickstart '^0 ADDED 127\.0\.0\.4 [0-9]{19}$'
expect_output quickstart '^1 REMOVED 127\.0\.0\.4 [0-9]{19}$'
expect_output quickstart '^processes: none$'
expect_output quickstart '^picture  .*(/throughput\.svg|gnuplot-nox\))$'
expect_output quickstart '^in Python  .*quickstart --python: '
expect_output quickstart '^listening ports: none of ([5-9]|[0-9]{2}) '

say "README's program, by what quickstart has built"
for target in dtlaunch dtkv dt_python_zip; do grep -qw "$target" "$T/built" || fail "quickstart does not build $target"; done
has_torch || exit 0
cat >train.py <<'END'
import torch, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 2)
data = TensorDataset(torch.randn(256, 4), torch.randint(2, (256,)))
END
sed -n '/^    import dtkv.torch/,/job.step/s/^    //p' "$DT_SOURCE/README.md" >>train.py
export XDG_RUNTIME_DIR=$T/run XDG_STATE_HOME=$T/state
run readme dtlaunch -n 2 --elastic-training-enabled "$PYTHON" train.py
expect_status 0
