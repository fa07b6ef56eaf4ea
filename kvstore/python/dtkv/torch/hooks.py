"""What PyTorch calls while it computes: a function for each gradient of a parameter, and one before each module."""

from __future__ import annotations

import sys
import weakref
from typing import Any, Callable

import torch

_modules: Any = torch.nn.modules.module
_is_compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
_HAS_HOOK = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


class Hook:
    """Functions are called until remove(). `kept`: what must live as long."""

    def __init__(self, handle: Any, kept: Any = None) -> None:
        self._handle, self._kept = handle, kept

    def remove(self) -> None:
        """No call comes any more."""
        self._handle.remove()


def on_gradient(parameter: Any, see: Callable[[], None]) -> Hook:
    """Calls see() each time that backward has added to the parameter's gradient; for a tensor on a device in a thread of
    autograd."""
    if _HAS_HOOK:
        return Hook(parameter.register_post_accumulate_grad_hook(lambda _: see()))
    node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]  # before PyTorch 2.1 the hook is the node's
    return Hook(node.register_hook(lambda *_: see()), node)


def before_forward(see: Callable[[Any, Any], None]) -> Hook:
    """Calls see(module, arguments) before each forward() of this process. The hook is PyTorch's for all modules: a module's
    own hooks would be copied, sent and scripted with it, and turn fast paths off. Code that torch.compile makes does not call
    it."""

    def see_uncompiled(module: Any, inputs: Any) -> None:
        if not _is_compiling():  # what PyTorch cannot compile with the module's code would leave all of it uncompiled
            see(module, inputs)

    return Hook(_modules.register_module_forward_pre_hook(see_uncompiled))


def weakly(method: Any, *words: Any) -> Callable[..., None]:
    """A function that calls the method with these words before its own, as long as the method's object is there."""
    kept = weakref.WeakMethod(method)

    def see(*arguments: Any) -> None:
        found = kept()
        if found is not None:
            found(*words, *arguments)

    return see


def has_compiled(model: Any) -> bool:
    """Whether code was compiled in this process, or will be for a module: a guard on a parameter's class would compile it
    anew in each step."""
    compiled = sys.modules.get("torch._dynamo.utils")
    if compiled is not None and compiled.counters["frames"]:
        return True
    return "torch._dynamo" in sys.modules and any(hasattr(module, "_orig_mod") for module in model.modules())
