"""Workers that share one import of PyTorch, which takes longer than what most of them do.

    forks.py parent NUMBER         imports it, and forks workers until the process that started it ends
    forks.py run SCRIPT [WORD...]  the script, in a child of a parent

FORKS_PARENT is the name of the parents' abstract sockets, of which there are FORKS_PARENTS; NAME.0 and so on. The process of `run` is the job's worker: it gives the child its descriptors, environment and signals, and ends as the child
does; a child whose worker was killed is killed.
"""

import atexit
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
import threading

from dtkv import run as warm


def address(number):
    return f"\0{os.environ['FORKS_PARENT']}.{number % int(os.environ['FORKS_PARENTS'])}"


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def keep(connection):
    """Runs the script of a worker in a child of its own. Returns there, with its words."""
    facts, descriptors = warm._receive(connection, 3)
    pid = os.fork()
    if pid == 0:
        connection.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        warm._become_child({**facts, "group": 0}, descriptors)  # the job's group is in another session
        return facts["words"]
    for one in descriptors:
        os.close(one)
    warm._send(connection, {"pid": pid})
    end = os.pidfd_open(pid)
    if end not in select.select([end, connection], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
        os._exit(0)
    warm._send(connection, {"status": os.waitpid(pid, 0)[1]})
    os._exit(0)


def be_parent(number):
    end_with_parent()
    for name in ("torch", "dtkv.torch"):
        importlib.import_module(name)
    gc.freeze()  # else the first collection of each child copies what all of them have
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address(number))
        listener.listen(64)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                break
            connection.close()
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    words = keep(connection)
    try:
        warm._run_script(words)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            end_as_program(end.code or 0)
        raise


def end_as_program(code):
    """What the interpreter does at its end, but for the destruction of all that the parent has imported: this copies most of it,
    and takes ten times as long as most workers."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for one in (sys.stdout, sys.stderr):
        one.flush()
    os._exit(code)


def run(words):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address(int(os.environ.get("DT_WORKER_ID", 0))))
    facts = {"words": words, "environment": dict(os.environ), "cwd": os.getcwd()}
    warm._send(connection, facts, [0, 1, 2])
    pid = warm._receive(connection)[0]["pid"]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: os.kill(pid, number))
    warm._end_as(warm._receive(connection)[0]["status"])


if sys.argv[1] == "parent":
    be_parent(int(sys.argv[2]))
run(sys.argv[2:])
