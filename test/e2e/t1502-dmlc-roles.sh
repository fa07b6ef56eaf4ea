# timeout=120
# --dmlc-roles: the command runs as scheduler, servers and workers, and manages their ports and ends itself.
. "$(dirname "$0")/lib.sh"
cat >"$T/roles.py" <<'END'
# As ps-lite does it: all nodes meet at the scheduler, and leave when all have come.
import os, socket, sys
role = os.environ["DMLC_ROLE"]
nodes = int(os.environ["DMLC_NUM_WORKER"]) + int(os.environ["DMLC_NUM_SERVER"])
root = (os.environ["DMLC_PS_ROOT_URI"], int(os.environ["DMLC_PS_ROOT_PORT"]))
if role == "scheduler":
    listener = socket.socket()  # without SO_REUSEADDR: no other socket has the port
    listener.bind(("", root[1]))
    listener.listen()
    met = [listener.accept()[0] for _ in range(nodes)]
    roles = sorted(one.recv(20).decode() for one in met)
    print("met", *roles)
    for one in met:
        one.sendall(b"bye")
else:
    import time
    until = time.monotonic() + 60
    while True:
        try:
            node = socket.create_connection(root)
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)  # between two looks, not a wait
    node.sendall(role.encode())
    assert node.recv(3) == b"bye"
    if role == "server":
        time.sleep(0.5)  # how long they outlive the workers, not a wait
    print(role, "is done")
END
ssh_hosts 2
run roles dtlaunch -n 2 -s 2 --dmlc-roles -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" python3 "$T/roles.py"
expect_status 0
expect_output roles 'met server server worker worker'
for one in 'worker 0' 'worker 1'; do expect_output roles "^\[$one .*\] worker is done"; done
for one in 'server 0' 'server 1'; do expect_output roles "^\[$one .*\] server is done"; done

say "a server that fails ends the job"
run fails dtlaunch -n 1 -s 1 --dmlc-roles sh -c '[ $DMLC_ROLE != server ] || exit 3; exec sleep 100'
expect_status 67
expect_output fails 'server 0 on localhost ended \(exit code 3\)'

run elastic dtlaunch -n 1 --dmlc-roles --elastic-training-enabled true
expect_status 2
expect_output elastic 'do not go together'
expect_nothing_left
