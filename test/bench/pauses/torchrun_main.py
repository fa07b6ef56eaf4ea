"""torchrun."""
import no_libuv  # noqa: F401  before all others
from torch.distributed.run import main

main()
