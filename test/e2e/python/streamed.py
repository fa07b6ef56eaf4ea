"""A worker with one layer in memory at a time, of 16 of 16 MiB: prints for each epoch the peak of its memory over what
it had before, in layers."""
import numpy as np

import dtkv

LAYERS, COUNT = 16, 4 << 20


def peak():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / (COUNT * 4 / 1024)


def forget_peak():
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


forget_peak()
before = peak()
with dtkv.Store() as kv:
    for i in range(LAYERS):
        kv.init({f"layer{i}": np.full(COUNT, i, "f4")})
    for view in kv.epochs(4):
        for i in range(LAYERS):
            layer = np.full(COUNT, i + 1.0, "f4")
            kv.pushpull(f"layer{i}", layer, reduce="sum")
            assert (layer[::1000] == i + 1.0).all()
            del layer
            layer = np.empty(COUNT, "f4")
            kv.pull(f"layer{i}", layer)
            assert (layer[::1000] == i + 1.0).all()
            del layer
        print(f"epoch {view.epoch}: {peak() - before:.2f} layers more", flush=True)
        forget_peak()
