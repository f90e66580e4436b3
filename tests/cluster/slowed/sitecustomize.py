"""Imported by every Python process of the tested cluster: notes which node works on what, and slows it down.

Does nothing unless the file `slow` stands in the folder SGPU_TEST_MARKS, with the seconds that a call takes
longer, by kind of work. Only modules that a process imports anyway are touched.
"""

from __future__ import annotations

import functools
import importlib.machinery
import json
import os
import sys
import time
from pathlib import Path

MARKS = Path(os.environ["SGPU_TEST_MARKS"])
MARKED = {
    "sgpu.engines.transformers": ("TransformersEngine", "sample"),
    "sgpu.gp.classifier": ("GPClassifier", "fit"),
}


def marked(kind, method):
    @functools.wraps(method)
    def slowed(*arguments, **options):
        import ray

        slow = MARKS / "slow"
        if not slow.exists() or not ray.is_initialized():
            return method(*arguments, **options)
        marks = MARKS / f"{kind}-{ray.get_runtime_context().get_node_id()}-{os.getpid()}"
        with marks.open("a") as file:
            file.write("begin\n" + (f"of-{len(arguments[1])}\n" if kind == "sample" else ""))
        time.sleep(json.loads(slow.read_text())[kind])
        result = method(*arguments, **options)
        with marks.open("a") as file:
            file.write("end\n")
        return result

    return slowed


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in MARKED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module
        owner, kind = MARKED[name]

        def exec_module(module):
            execute(module)
            setattr(getattr(module, owner), kind, marked(kind, getattr(getattr(module, owner), kind)))

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder)
