"""What the store takes as an array, described to libdtkv without a copy.

numpy arrays, PyTorch tensors, objects with `__dlpack__` (JAX, CuPy), DLPack capsules, and whatever has the buffer
protocol (array.array, bytearray, ctypes arrays). Values are dense, in C order, of float32, float64, float16, int64 or
bfloat16 (PyTorch's, or `bfloat16(...)` around numpy's uint16).

numpy and torch are not imported here: an object can only be of theirs if the program has imported them.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Dict, NamedTuple, Optional, Tuple

from . import _library

FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT64 = range(5)
_CPU, _CUDA = 0, 1

_TYPES = "float32, float64, float16, int64 and bfloat16"
_NUMPY = {"float32": FLOAT32, "float64": FLOAT64, "float16": FLOAT16, "int64": INT64}
_TORCH = {**{f"torch.{name}": number for name, number in _NUMPY.items()}, "torch.bfloat16": BFLOAT16}
_FORMATS: Dict[Tuple[str, int], int] = {
    ("f", 4): FLOAT32,
    ("d", 8): FLOAT64,
    ("e", 2): FLOAT16,
    ("q", 8): INT64,
    ("l", 8): INT64,
}


class bfloat16:  # noqa: N801, as a dtype it is called so
    """Says that the 16-bit integers of a numpy array are bfloat16 numbers. numpy has no such type."""

    def __init__(self, bits: Any) -> None:
        self.bits = bits


class Described(NamedTuple):
    """An array for libdtkv. The memory is valid as long as `owner` is."""

    array: _library.Array
    owner: Any


def describe(key: str, value: Any, is_written: bool) -> Described:
    """Describes `value` for an operation on `key`; `is_written`: a value will be pulled into it.

    TypeError: it is no array, or of a type that the store does not have. ValueError: it is not contiguous, is
    read-only, or its memory is gone. Nothing was changed then.
    """
    numpy = sys.modules.get("numpy")
    if isinstance(value, bfloat16):
        if numpy is None or not isinstance(value.bits, numpy.ndarray) or value.bits.dtype != "uint16":
            raise TypeError(f"{key}: dtkv.bfloat16 is for a numpy array of uint16")
        return _numpy(key, value.bits, is_written, BFLOAT16)
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _numpy(key, value, is_written, None)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch(key, value, torch)
    if type(value).__name__ == "PyCapsule":
        return _capsule(key, value, is_written)
    if hasattr(value, "__dlpack__"):
        return _dlpack(key, value, is_written)
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(
            f"{key}: {type(value).__name__} is no array: the store takes numpy arrays, PyTorch tensors, and objects "
            "with __dlpack__ or the buffer protocol"
        ) from None
    return _buffer(key, view, is_written)


def _unsupported(key: str, dtype: object) -> TypeError:
    return TypeError(f"{key}: values of type {dtype} are not supported; supported are {_TYPES}")


def _scattered(key: str) -> ValueError:
    return ValueError(f"{key}: the array is not contiguous in memory: make a contiguous copy first")


def _read_only(key: str) -> ValueError:
    return ValueError(f"{key}: the array is read-only, so no value can be pulled into it")


def _numpy(key: str, value: Any, is_written: bool, dtype: Optional[int]) -> Described:
    if dtype is None:
        dtype = _NUMPY.get(value.dtype.name) if value.dtype.isnative else None
    if dtype is None:
        raise _unsupported(key, value.dtype)
    if not value.flags.c_contiguous:
        raise _scattered(key)
    if is_written and not value.flags.writeable:
        raise _read_only(key)
    address = value.__array_interface__["data"][0]
    return Described(_library.Array(address, value.size, dtype, _CPU, 0, None), value)


def _torch(key: str, value: Any, torch: Any) -> Described:
    dtype = _TORCH.get(str(value.dtype))
    if dtype is None:
        raise _unsupported(key, value.dtype)
    if value.layout != torch.strided:
        raise TypeError(f"{key}: a tensor of layout {value.layout} is not dense")
    if not value.is_contiguous():
        raise _scattered(key)
    kind = value.device.type
    if kind == "cpu":
        return Described(_library.Array(value.data_ptr(), value.numel(), dtype, _CPU, 0, None), value)
    if kind == "cuda":
        stream = torch.cuda.current_stream(value.device).cuda_stream
        array = _library.Array(value.data_ptr(), value.numel(), dtype, _CUDA, value.device.index, stream)
        return Described(array, value)
    raise TypeError(f"{key}: a tensor on the device '{value.device}' is not supported; supported are cpu and cuda")


def _dlpack(key: str, value: Any, is_written: bool) -> Described:
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # made before DLPack had versions
        capsule = value.__dlpack__()
    return _capsule(key, capsule, is_written)


_get_name = ctypes.pythonapi.PyCapsule_GetName
_get_name.restype, _get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _capsule(key: str, capsule: Any, is_written: bool) -> Described:
    """The capsule stays the tensor's owner: as long as it lives, the memory does."""
    name = _get_name(capsule)
    library = _library.library()
    array = _library.Array()
    is_read_only = ctypes.c_int(0)
    if name == b"dltensor":
        code = library.dtkv_array_from_dlpack(_get_pointer(capsule, name), None, ctypes.byref(array))
    elif name == b"dltensor_versioned":
        code = library.dtkv_array_from_dlpack_versioned(
            _get_pointer(capsule, name), None, ctypes.byref(array), ctypes.byref(is_read_only)
        )
    else:
        shown = "without a name" if name is None else f"'{name.decode()}'"
        raise ValueError(f"{key}: the capsule {shown} has no DLPack tensor, or its tensor was taken already")
    if code != 0:
        raise ValueError(f"{key}: {_library.last_error()}")
    if is_written and is_read_only.value:
        raise _read_only(key)
    return Described(array, capsule)


class _PyBuffer(ctypes.Structure):
    """Py_buffer, of which CPython gives a memory's address."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.restype, _get_buffer.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.restype, _release_buffer.argtypes = None, [ctypes.POINTER(_PyBuffer)]
_PYBUF_SIMPLE = 0


def _buffer(key: str, view: memoryview, is_written: bool) -> Described:
    """The memoryview keeps the exporter from moving or freeing its memory."""
    native = view.format[1:] if view.format[:1] in "@=<" and sys.byteorder == "little" else view.format
    dtype = _FORMATS.get((native, view.itemsize))
    if dtype is None:
        raise _unsupported(key, f"'{view.format}' (struct's letter)")
    if not view.c_contiguous:
        raise _scattered(key)
    if is_written and view.readonly:
        raise _read_only(key)
    raw = _PyBuffer()
    _get_buffer(view, ctypes.byref(raw), _PYBUF_SIMPLE)
    address = raw.buf
    _release_buffer(ctypes.byref(raw))
    return Described(_library.Array(address, view.nbytes // view.itemsize, dtype, _CPU, 0, None), view)
