"""Where PyTorch is built without libuv (USE_LIBUV=0), its stores do without it: from 2.4 on torchrun's rendezvous and its workers'
ask for it nonetheless."""
import functools
import os
import sys

import torch.distributed

if os.environ.get("USE_LIBUV") == "0":
    torch.distributed.TCPStore = functools.partial(torch.distributed.TCPStore, use_libuv=False)
    sys.modules["torch.distributed.rendezvous"].TCPStore = torch.distributed.TCPStore
