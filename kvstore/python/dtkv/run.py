"""python3 -m dtkv.run [--preload MODULE]... [--no-warm] SCRIPT [WORD...]: starts a script in a process that has imported its
modules already.

For commands of `dtlaunch --on-change restart`: a host has one parent interpreter for a job, which imports the modules
once and forks each worker. The parent has one thread, runs no operator and touches no device. Without dtlaunch, with
--no-warm, or where a module cannot be shared by a fork, the script runs in this process as usual.

    dtlaunch -n 4 -H hosts --elastic-training-enabled --on-change restart python3 -m dtkv.run --preload torch train.py

This process is the worker for dtlaunch: it passes its descriptors, environment and arguments to the parent, waits for
the child, and ends as the child ended. Child and process are one process group, so that the agent's signals reach both.
"""

from __future__ import annotations

import argparse
import array
import ctypes
import hashlib
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
import types
from typing import Any, Dict, List, NoReturn, Optional

_START_LIMIT = 60.0
"""Seconds until the parent has its socket."""
_OWN = ("DT_TOKEN", "DT_ROLE", "DT_WORKER_ID", "DT_RANK", "DT_SLOT", "RANK", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT")
"""Variables that make a process a certain worker: the parent is none."""


def _address(preload: List[str]) -> str:
    """Of the parent for this job and host: an abstract socket, which goes with its process."""
    text = "\n".join([os.environ["DT_AGENT_SOCKET"], sys.executable, *preload])
    return f"\0dtkv.run-{os.getuid()}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _is_mine(connection: socket.socket) -> bool:
    """Whether the other end is of this user: an abstract socket has no permissions."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder) == os.getuid()


def _agent() -> int:
    """The pid of the host's agent, an ancestor of this process; 0: there is none."""
    pid = os.getpid()
    while pid > 1:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            name, _, rest = file.read().rpartition(")")
        if name.endswith("(dtagent"):
            return pid
        pid = int(rest.split()[1])
    return 0


def _send(connection: socket.socket, message: Dict[str, Any], descriptors: Optional[List[int]] = None) -> None:
    body = json.dumps(message).encode()
    head = len(body).to_bytes(4, "little")
    extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    connection.sendmsg([head], extra)
    connection.sendall(body)


def _receive(connection: socket.socket, descriptors: int = 0) -> "tuple[Optional[Dict[str, Any]], List[int]]":
    """The next message; None: the other end has closed."""
    found = array.array("i")
    head, extra, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(descriptors * found.itemsize))
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    body = b""
    size = int.from_bytes(head, "little")
    while len(head) == 4 and len(body) < size:
        part = connection.recv(size - len(body))
        if not part:
            break
        body += part
    if len(head) < 4 or len(body) < size:
        return None, list(found)
    message: Dict[str, Any] = json.loads(body)
    return message, list(found)


# ---------------------------------------------------------------- the script


def _run_script(words: List[str]) -> NoReturn:
    """Runs the script as `python3 SCRIPT WORD...` does, to the end of this process."""
    path = words[0]
    sys.argv = words
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__)
    sys.modules["__main__"] = main

    def from_the_script_on(kind: Any, error: Any, trace: Any) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next
        traceback.print_exception(kind, error, trace)

    sys.excepthook = from_the_script_on
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        sys.exit(f"{sys.executable}: can't open file '{os.path.abspath(path)}': {error.strerror}")
    exec(compile(source, path, "exec"), main.__dict__)
    sys.exit(0)


# ---------------------------------------------------------------- the worker


def _end_as(status: int) -> NoReturn:
    """Ends this process as the child ended (a status of waitpid)."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _start_parent(preload: List[str], agent: int) -> None:
    """Starts a parent interpreter below the agent. One that finds another at its address ends."""
    environment = {name: value for name, value in os.environ.items() if name not in _OWN}
    environment["DT_WARM_PARENT"] = "1"  # the agent keeps it when no worker runs
    environment["OPENBLAS_NUM_THREADS"] = "1"  # else numpy starts threads, which no fork has
    command = [sys.executable, "-m", "dtkv.run", "--parent", str(agent), "--address", _address(preload)[1:]]
    for module in preload:
        command += ["--preload", module]
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    if os.fork() == 0:  # no child of this process, with which it would end
        os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGINT):  # the children's scripts are to get them
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.closerange(3, 65536)
        os.execve(sys.executable, command, environment)
    os._exit(0)


def _connect(preload: List[str], agent: int) -> Optional[socket.socket]:
    deadline = time.monotonic() + _START_LIMIT
    is_started = False
    while time.monotonic() < deadline:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(_address(preload))
            if _is_mine(connection):
                return connection
        except (ConnectionRefusedError, ConnectionResetError, FileNotFoundError):
            if not is_started:
                _start_parent(preload, agent)
                is_started = True
        connection.close()
        time.sleep(0.005)
    return None


def _be_worker(preload: List[str], words: List[str]) -> None:
    """Returns if the script is to run in this process."""
    agent = _agent() if "DT_AGENT_SOCKET" in os.environ and hasattr(os, "pidfd_open") else 0
    if agent == 0:
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the child gets it, too, and this process its end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = _connect(preload, agent)
    answer: Optional[Dict[str, Any]] = {"why": f"no parent interpreter answered within {_START_LIMIT:.0f} s"}
    if connection is not None:
        facts = {"words": words, "environment": dict(os.environ), "cwd": os.getcwd(), "group": os.getpgrp()}
        _send(connection, facts, [0, 1, 2])
        answer, _ = _receive(connection)
        if answer is None:
            answer = {"why": "the parent interpreter has ended"}
    assert answer is not None
    if "why" in answer:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print(f"dtkv.run: {answer['why']}: this worker imports everything itself", file=sys.stderr, flush=True)
        return
    assert connection is not None
    end, _ = _receive(connection)
    if end is None:
        os.write(2, b"dtkv.run: the parent interpreter has ended, and this worker with it\n")
        os.kill(os.getpid(), signal.SIGKILL)
    assert end is not None
    _end_as(int(end["status"]))


# ---------------------------------------------------------------- the parent


def _become_child(facts: Dict[str, Any], descriptors: List[int]) -> None:
    """In the child, before its script."""
    os.setpgid(0, int(facts["group"]))
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it does not outlive the parent
    for to, descriptor in enumerate(descriptors):
        os.dup2(descriptor, to)
        os.close(descriptor)
    encoding = sys.stdout.encoding
    sys.stdin = open(0, encoding=encoding, closefd=False)
    buffering = 1 if facts["environment"].get("PYTHONUNBUFFERED") else -1  # 1: a line
    sys.stdout = open(1, "w", buffering=buffering, encoding=encoding, closefd=False)
    sys.stderr = open(2, "w", buffering=1, encoding=encoding, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(facts["environment"])
    os.chdir(facts["cwd"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    threads = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    count = int(threads) if threads.isdigit() and int(threads) > 0 else len(os.sched_getaffinity(0))
    _set_threads(count)


def _set_threads(count: int) -> None:
    """What the libraries would have read from the environment when they were loaded."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)
    with open("/proc/self/maps", encoding="utf-8") as file:
        paths = {line.split()[-1] for line in file if "openblas" in line}
    for path in paths:
        library = ctypes.CDLL(path)
        if hasattr(library, "openblas_set_num_threads"):
            library.openblas_set_num_threads(ctypes.c_int(count))


def _import_all(preload: List[str]) -> str:
    """Why no worker can be forked; empty: it can."""
    for module in preload:
        try:
            importlib.import_module(module)
        except BaseException as error:  # whatever it is, the script may do without
            return f"--preload {module}: {type(error).__name__}: {error}"
        torch: Any = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            return f"--preload {module} uses a GPU, which a fork cannot go on with"
        threads = len(os.listdir("/proc/self/task"))
        if threads > 1:
            return f"--preload {module} starts threads ({threads - 1}), which a fork would not have"
    return ""


def _be_parent(preload: List[str], agent: int, address: str) -> List[str]:
    """Serves workers until the agent ends. Returns in a child, with the words of its script."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind("\0" + address)
    except OSError:
        os._exit(0)  # another one was faster
    listener.listen(64)
    agents_end = os.pidfd_open(agent)
    why = _import_all(preload)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(agents_end, selectors.EVENT_READ)
    children: Dict[int, "tuple[int, socket.socket]"] = {}
    while True:
        for key, _ in selector.select():
            if key.fd == agents_end:
                os._exit(0)  # and the children with it
            if key.fd in children:
                pid, connection = children.pop(key.fd)
                selector.unregister(key.fd)
                os.close(key.fd)
                _, status = os.waitpid(pid, 0)
                try:
                    _send(connection, {"status": status})
                except OSError:
                    pass  # killed before
                connection.close()
                continue
            connection, _ = listener.accept()
            connection.settimeout(10)
            try:
                facts, descriptors = _receive(connection, 3) if _is_mine(connection) else (None, [])
                if facts is None or why or len(descriptors) != 3:
                    if facts is not None:
                        _send(connection, {"why": why or "the descriptors were lost"})
                    connection.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    for used in [listener, connection, *(one for _, one in children.values())]:
                        used.close()
                    for descriptor in [agents_end, *children]:
                        os.close(descriptor)
                    selector.close()
                    _become_child(facts, descriptors)
                    words: List[str] = facts["words"]
                    return words
                for descriptor in descriptors:
                    os.close(descriptor)
                children[os.pidfd_open(pid)] = pid, connection
                selector.register(list(children)[-1], selectors.EVENT_READ)
                connection.settimeout(None)
                _send(connection, {"pid": pid})
            except OSError:
                connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m dtkv.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE", help="imported once for all workers of a host")
    parser.add_argument("--no-warm", action="store_true", help="run the script in this process")
    parser.add_argument("--prepare", action="store_true", help="only start the host's parent interpreter: for --prepare-data")
    parser.add_argument("--parent", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="SCRIPT WORD...")
    options = parser.parse_args()
    if options.parent:
        _run_script(_be_parent(options.preload, options.parent, options.address))
    if options.prepare:
        agent = _agent()
        if agent == 0 or "DT_AGENT_SOCKET" not in os.environ:
            sys.exit("dtkv.run: --prepare is for dtlaunch's --prepare-data: there is no agent above this process")
        _connect(options.preload, agent)
        return
    if not options.words:
        parser.error("no script is given")
    if not options.no_warm:
        _be_worker(options.preload, options.words)
    _run_script(options.words)


if __name__ == "__main__":
    main()
