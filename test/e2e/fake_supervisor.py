#!/usr/bin/env python3
"""A dtsupervisor that runs nothing: it speaks the control protocol (io/job/control_protocol.h) and does what the
first word of the job's command says. For tests of dtlaunch's own behaviour.

    end CODE    some output, then the end
    wait        until told to stop: once ends with 130, at once when forced
    stubborn    never ends
    die N       is gone N times without a word, then ends with 0
    die N early the same, from the second time on before it was ready
    silent      gone before it was ready
    refuse      says ERROR 68
    flood       10 MB of output, then the end
"""
import json, os, socket, struct, sys

args = sys.argv[1:]
spec = json.load(open(args[args.index("--spec") + 1]))
ready = int(args[args.index("--ready-fd") + 1])
what, *words = spec["command"]
print("started", "again" if "--resume" in args else "first", file=sys.stderr, flush=True)


def text(value):
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def frame(kind, body):
    return struct.pack("<IH", len(body) + 2, kind) + body


def console(line, is_stderr=False):
    link.sendall(frame(162, struct.pack("<B", is_stderr) + text(line + "\n")))


def end(code, why):
    link.sendall(frame(163, struct.pack("<i", code) + text(why)))
    sys.exit(0)


def request():
    header = link.recv(6, socket.MSG_WAITALL)
    if len(header) < 6:
        print("console gone", file=sys.stderr, flush=True)
        sys.exit(0)
    body = link.recv(struct.unpack("<I", header[:4])[0] - 2, socket.MSG_WAITALL)
    return json.loads(body[4:])


if what == "silent":
    sys.exit("the disk is full")
if what == "refuse":
    os.write(ready, b"ERROR 68 job j0 is running in this folder (pid 7 on h)\n")
    sys.exit(68)



def die():
    """Unless it was done often enough."""
    lives = spec["state_dir"] + "/lives"
    open(lives, "a").write("x")
    if os.path.getsize(lives) <= int(words[0]):
        os.kill(os.getpid(), 9)


if what == "die" and "early" in words and "--resume" in args:
    die()
if os.path.exists(spec["socket"]):
    os.unlink(spec["socket"])
server = socket.socket(socket.AF_UNIX)
server.bind(spec["socket"])
server.listen()
os.write(ready, f"READY {spec['socket']}\n".encode())
os.close(ready)
link, _ = server.accept()
asked = request()
assert asked == {"op": "console", "owner": True}, asked
link.sendall(frame(161, text('{"ok":true}')))

if what == "end":
    console("[worker 0 localhost] to stdout")
    console("[worker 0 localhost] to stderr", True)
    end(int(words[0]), "as told")
if what == "flood":
    for i in range(10_000):
        console("x" * 1000 + str(i))
    end(0, "flooded")
if what == "die":
    die()
    console("alive at last")
    end(0, "survived")
console("ready for signals")
while True:
    asked = request()
    console("asked to " + json.dumps(asked, sort_keys=True))
    link.sendall(frame(161, text('{"ok":true}')))
    if what == "wait" and (words or asked["force"]):
        end(130, "stopped")
