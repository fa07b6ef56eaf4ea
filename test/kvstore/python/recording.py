"""A double of libdtkv: it calls the real one, and keeps what was called in which order, beside what a test notes itself."""

import contextlib
from unittest import mock

from dtkv import _library


class Recording:
    """`log` has tuples: ("push", KEYS, PRIORITY, SAMPLES) of dtkv_pushpull, ("wait",), and what note() was given. `instead`: functions
    in place of the library's, by name; each gets the library's first."""

    def __init__(self, real):
        self._real = real
        self.log = []
        self.instead = {}

    def note(self, *words):
        self.log.append(words)

    def since(self, begin):
        return self.log[begin:]

    def pushes(self, begin=0):
        """Those of parameters."""
        return [one for one in self.log[begin:] if one[0] == "push" and not one[1][0].startswith("dtkv.")]

    def __getattr__(self, name):
        real = getattr(self._real, name)

        def call(*arguments):
            if name == "dtkv_pushpull":
                _, count, keys, _, _, options, _ = arguments
                options = options._obj
                self.note("push", [keys[i].decode() for i in range(count)], options.priority, options.samples)
            elif name == "dtkv_wait":
                self.note("wait")
            instead = self.instead.get(name)
            return real(*arguments) if instead is None else instead(real, *arguments)

        return call


@contextlib.contextmanager
def recorded():
    """Stores that are made meanwhile have the double."""
    double = Recording(_library.library())
    with mock.patch.object(_library, "library", lambda: double):
        yield double
