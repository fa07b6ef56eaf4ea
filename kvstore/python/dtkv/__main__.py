"""python3 -m dtkv: what this package found here. With --self-test: whether this PyTorch behaves as dtkv.torch needs."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys

from . import ABI, _library, version


def self_test() -> int:
    from .torch import selftest

    return 0 if selftest.run() else 1


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    print(f"python     {platform.python_version()} ({sys.executable})")
    print(f"dtkv       {os.path.dirname(os.path.abspath(__file__))}, for ABI {ABI}")
    try:
        library = _library.library()
    except ImportError as error:
        print(f"libdtkv    {error}", file=sys.stderr)
        return 1
    print(f"libdtkv    {version()}, ABI {library.dtkv_abi()} ({library._name})")
    print(f"device 0   {_library.last_error() if library.dtkv_check_device(0) else 'CUDA can use it'}")
    for name in ("numpy", "torch"):
        print(f"{name:10} {'there' if importlib.util.find_spec(name) else 'not installed'}")
    given = {name: value for name, value in sorted(os.environ.items()) if name.startswith("DT_")}
    if not given:
        print("dtlaunch   did not start this process: a store is of the type local")
    for name, value in given.items():
        print(f"{name}={'...' if name in ('DT_SECRET', 'DT_TOKEN') else value}")
    return 0


sys.exit(main())
