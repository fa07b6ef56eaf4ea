"""libdtkv: where it is found, and its functions as dtkv.h declares them.

Rules of ctypes here: every function has argument and result types; no callbacks; CDLL, which releases the GIL for the
whole call.
"""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import List

ABI = 1
"""The number of the interface (DTKV_ABI) that this package was written for."""


class Array(ctypes.Structure):
    """dtkv_array"""

    _fields_ = [
        ("data", c_void_p),
        ("count", c_size_t),
        ("dtype", c_int),
        ("device", c_int),
        ("device_id", c_int),
        ("stream", c_void_p),
    ]


class PushOptions(ctypes.Structure):
    """dtkv_push_options"""

    _fields_ = [
        ("reduce", c_int),
        ("samples", c_uint64),
        ("step", c_uint64),
        ("learning_rate", c_float),
        ("priority", c_int),
    ]


class ViewOut(ctypes.Structure):
    """dtkv_view"""

    _fields_ = [
        ("generation", c_uint64),
        ("rank", c_uint32),
        ("num_workers", c_uint32),
        ("epoch", c_uint32),
        ("changed", c_int),
        ("rolled_back", c_int),
    ]


_STORE = c_void_p
_KEYS = POINTER(c_char_p)
_ARRAYS = POINTER(Array)
_HANDLE = POINTER(c_uint64)

# Function: its result, its arguments.
_FUNCTIONS = {
    "dtkv_create": (c_int, [c_char_p, POINTER(_STORE)]),
    "dtkv_destroy": (None, [_STORE]),
    "dtkv_last_error": (c_char_p, []),
    "dtkv_type": (c_char_p, [_STORE]),
    "dtkv_rank": (c_uint32, [_STORE]),
    "dtkv_num_workers": (c_uint32, [_STORE]),
    "dtkv_generation": (c_uint64, [_STORE]),
    "dtkv_worker_id": (c_uint32, [_STORE]),
    "dtkv_is_newcomer": (c_int, [_STORE]),
    "dtkv_is_lead": (c_int, [_STORE]),
    "dtkv_init": (c_int, [_STORE, c_size_t, _KEYS, _ARRAYS, c_int]),
    "dtkv_push": (c_int, [_STORE, c_size_t, _KEYS, _ARRAYS, POINTER(PushOptions), _HANDLE]),
    "dtkv_pull": (c_int, [_STORE, c_size_t, _KEYS, _ARRAYS, c_int, _HANDLE]),
    "dtkv_pushpull": (c_int, [_STORE, c_size_t, _KEYS, _ARRAYS, _ARRAYS, POINTER(PushOptions), _HANDLE]),
    "dtkv_allocate": (c_int, [_STORE, c_size_t, POINTER(c_void_p)]),
    "dtkv_free": (c_int, [_STORE, c_void_p]),
    "dtkv_keep": (c_int, [_STORE, c_void_p]),
    "dtkv_unkeep": (c_int, [c_void_p]),
    "dtkv_wait": (c_int, [_STORE, c_uint64, c_double]),
    "dtkv_wait_all": (c_int, [_STORE, c_double]),
    "dtkv_wait_in_stream": (c_int, [_STORE, c_uint64, c_double]),
    "dtkv_set_optimizer": (c_int, [_STORE, c_char_p]),
    "dtkv_set_gradient_compression": (c_int, [_STORE, c_char_p]),
    "dtkv_barrier": (c_int, [_STORE]),
    "dtkv_finish_steps": (c_int, [_STORE]),
    "dtkv_finish_epoch": (c_int, [_STORE]),
    "dtkv_epoch_boundary": (c_int, [_STORE, c_uint32, POINTER(ViewOut)]),
    "dtkv_progress": (c_int, [_STORE, c_uint32, c_uint64]),
    "dtkv_optimizer": (c_int, [_STORE, c_char_p, c_size_t, POINTER(c_int)]),
    "dtkv_pull_state": (c_int, [_STORE, c_size_t, _KEYS, c_int, _ARRAYS, POINTER(c_uint64)]),
    "dtkv_init_state": (c_int, [_STORE, c_size_t, _KEYS, c_int, _ARRAYS, POINTER(c_uint64)]),
    "dtkv_report": (c_int, [_STORE, c_char_p, c_double]),
    "dtkv_report_text": (c_int, [_STORE, c_char_p, c_char_p]),
    "dtkv_array_from_dlpack": (c_int, [c_void_p, c_void_p, _ARRAYS]),
    "dtkv_array_from_dlpack_versioned": (c_int, [c_void_p, c_void_p, _ARRAYS, POINTER(c_int)]),
    "dtkv_check_device": (c_int, [c_int]),
    "dtkv_version": (c_char_p, []),
    "dtkv_abi": (c_int, []),
}


def candidates() -> List[str]:
    """Where libdtkv is looked for, in this order. DTKV_LIBRARY, if it is set, is the only place."""
    named = os.environ.get("DTKV_LIBRARY")
    if named:
        return [named]
    package = os.path.dirname(os.path.abspath(__file__))
    # dtlaunch brings the package to its processes as a zip file: on a host with the library beside it.
    outside = os.path.dirname(os.path.dirname(package))
    folders = [package] + ([outside, os.path.dirname(outside)] if not os.path.isdir(package) else [])
    beside = [os.path.join(folder, "libdtkv.so.0") for folder in folders]
    return [path for path in beside if os.path.exists(path)] + ["libdtkv.so.0"]


def _open() -> ctypes.CDLL:
    reasons = []
    for path in candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(
        f"libdtkv cannot be loaded ({'; '.join(reasons)}): install the package libdtkv0, or set DTKV_LIBRARY to the "
        "path of libdtkv.so"
    )


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """libdtkv, loaded by the first call. ImportError names what was tried."""
    library = _open()
    where = library._name
    if not hasattr(library, "dtkv_abi"):
        raise ImportError(f"{where} is older than this package: it has no ABI number, and dtkv needs ABI {ABI}")
    library.dtkv_abi.restype = c_int
    abi = library.dtkv_abi()
    if abi != ABI:
        raise ImportError(f"{where} has ABI {abi}, and this package of dtkv needs {ABI}: install both of one version")
    for name, (result, arguments) in _FUNCTIONS.items():
        if not hasattr(library, name):
            raise ImportError(f"{where} is older than this package: it has no {name}: install both of one version")
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


def c_text(text: str) -> bytes:
    """`text` for a C function, which would end it at a NUL. ValueError if it has one."""
    if "\0" in text:
        raise ValueError(f"{text!r}: a name or text must not contain a NUL")
    return text.encode()


def last_error() -> str:
    """The message of this thread's last failed call."""
    text: bytes = library().dtkv_last_error()
    return text.decode("utf-8", "replace")
