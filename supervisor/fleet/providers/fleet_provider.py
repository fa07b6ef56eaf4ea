"""What our providers' programs have in common: requests come in, answers go out, as packaging/doc/provider.md says."""
from __future__ import annotations

import json
import sys
import threading
from typing import Any, Callable, Mapping

Json = dict[str, Any]


class Refused(Exception):
    """A request that cannot be done, and how it is to be taken: away, busy, denied or wrong."""

    def __init__(self, kind: str, text: str, code: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.code = code


class Output:
    """Whole lines on standard output, of any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def say(self, line: Json) -> None:
        with self.lock:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def serve(output: Output, does: Mapping[str, Callable[[Json], Json]], asked: str) -> int:
    """Answers requests until there are no more. `asked`: who is asked behind it, in sentences."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            act = does.get(request.get("do", ""))
            if act is None:
                raise Refused("wrong", f"unknown request {request.get('do')!r}")
            answer = {"ok": True} | act(request)
        except Refused as refused:
            answer = {"ok": False, "kind": refused.kind, "error": str(refused)}
        except (KeyError, ValueError, TypeError, OSError) as e:
            answer = {"ok": False, "kind": "away", "error": f"{asked}'s answer is not understood: {type(e).__name__}: {e}"}
        output.say({"n": request["n"]} | answer)
    return 0
