"""One vLLM engine for several callers: their requests run in one batch, and no call waits for another.

A stage hands its engine one block of questions at a time. Were blocks generated one after the other, the
engine would idle at the end of each, when few answers are still being written.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)  # a call is itself alone, so that calls can be keys
class _Call:
    inputs: Sequence[Any]
    parameters: Sequence[Any]
    outputs: dict[int, Any] = field(default_factory=dict)
    result: Future[list[Any]] = field(default_factory=Future)
    request_ids: list[str] = field(default_factory=list)


class ContinuousBatching:
    """Builds a `vllm.LLM` in a thread of its own and steps it there for all callers.

    One thread for everything, because OpenMP keeps a team of threads for each thread that calls it.
    """

    def __init__(self, build: Callable[[], Any]) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._running: dict[int, _Call] = {}  # by the number of the request
        built: Future[Any] = Future()
        self._thread = threading.Thread(target=self._run, args=(build, built), name="vllm", daemon=True)
        self._thread.start()
        self.llm: Any = built.result()

    def generate(self, inputs: Sequence[Any], parameters: Sequence[Any]) -> list[Any]:
        """Finished outputs in the order of ``inputs``; raises what the engine raised. For any thread."""
        if not inputs:
            return []
        call = _Call(inputs, parameters)
        self._calls.put(call)
        return call.result.result()

    def close(self) -> None:
        """End the engine and its thread, after the calls that came before."""
        self._calls.put(None)
        self._thread.join()
        self.llm = None

    def _run(self, build: Callable[[], Any], built: Future[Any]) -> None:
        try:
            built.set_result(build())
        except BaseException as error:
            built.set_exception(error)
            return
        open_ = True
        while open_ or self._running:
            open_ = self._admit_waiting() and open_
            if self._running:
                try:
                    self._step()
                except Exception as error:
                    self._fail_all(error)
        self.llm.llm_engine.engine_core.shutdown()

    def _admit_waiting(self) -> bool:
        """Start every call that waits; without work, wait for one. False once the engine is to end."""
        while True:
            try:
                call = self._calls.get(block=not self._running)
            except queue.Empty:
                return True
            if call is None:
                return False
            self._admit(call)

    def _admit(self, call: _Call) -> None:
        try:
            if not self._running:
                # What an earlier call left in the cache changes the shapes of a batch, and so the last bits.
                self.llm.reset_prefix_cache()
            call.request_ids = self.llm.enqueue(list(call.inputs), list(call.parameters), use_tqdm=False)
        except Exception as error:
            call.result.set_exception(error)
            return
        # To the number by which vLLM reports a request, it appends something random for its own use.
        self._running |= {int(re.split(r"\D", name, maxsplit=1)[0]): call for name in call.request_ids}

    def _step(self) -> None:
        for output in self.llm.llm_engine.step():
            if not output.finished:
                continue
            number = int(output.request_id)
            call = self._running.pop(number)
            call.outputs[number] = output
            if len(call.outputs) == len(call.inputs):
                call.result.set_result([call.outputs[key] for key in sorted(call.outputs)])

    def _fail_all(self, error: Exception) -> None:
        """A failed step leaves all requests in an unknown state: none of them may answer later."""
        calls = dict.fromkeys(self._running.values())
        self._running.clear()
        try:
            names = [name for call in calls for name in call.request_ids]
            self.llm.llm_engine.abort_request(names, internal=True)
        except Exception as second:
            error.add_note(f"and its requests could not be withdrawn: {second}")
        for call in calls:
            call.result.set_exception(error)
