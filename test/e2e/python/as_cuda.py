"""Runs a program whose tensors libdtkv takes for memory of CUDA device 0, which is emulated: as_cuda.py PROGRAM WORDS..."""
import os
import runpy
import sys

from dtkv import arrays

describe = arrays._torch


def as_cuda(key, value, torch):
    described = describe(key, value, torch)
    described.array.device = arrays._CUDA
    return described


arrays._torch = as_cuda
os.environ["DT_EMULATED_REACH"] = "all"
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
