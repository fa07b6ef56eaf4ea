"""One exception for each error code of dtkv.h, with the library's sentence."""

from __future__ import annotations

from typing import Dict, Type


class Error(RuntimeError):
    """An operation of the kvstore failed. `code` is the DTKV_* number."""

    code = 7


class InvalidUse(Error):
    """A wrong argument, or a call that is not allowed now."""

    code = 1


class Unavailable(Error):
    """A server or the host's agent cannot be reached."""

    code = 2


class Timeout(Error):
    """A deadline passed."""

    code = 3


class Fenced(Error):
    """This worker is no longer a member of the job."""

    code = 4


class Leave(Error):
    """This worker was removed from the job: stop training and exit with 0."""

    code = 5


class Mismatch(Error):
    """Shape, dtype, optimizer, step or learning rate differ between workers."""

    code = 6


class Internal(Error):
    """A defect of the library, or a lack of memory."""

    code = 7


class Nonfinite(Error):
    """A gradient with infinities or NaN was refused (--refuse-nonfinite)."""

    code = 8


class Rollback(Error):
    """A server was lost: call epoch_boundary, which returns the epoch to go on with."""

    code = 9


_BY_CODE: Dict[int, Type[Error]] = {
    kind.code: kind
    for kind in (InvalidUse, Unavailable, Timeout, Fenced, Leave, Mismatch, Internal, Nonfinite, Rollback)
}


def from_code(code: int, message: str) -> Error:
    """The exception for a DTKV_* code."""
    return _BY_CODE.get(code, Internal)(message)
