"""Sampling with vLLM's offline engine, on one GPU, several GPUs or the CPU."""

from __future__ import annotations

import gc
import os
import queue
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from sgpu.engines.base import (
    Answer,
    EngineConfig,
    Generation,
    Prompt,
    Sampling,
    clean_answer,
    locate_weights,
)
from sgpu.engines.pretrained import load_front, reads_images
from sgpu.engines.prompts import (
    RenderedPrompt,
    candidate_token_ids,
    check_prompt_form,
    render_all,
)
from sgpu.errors import EngineDiedError
from sgpu.models.machine import on_cpu

GIB = 2**30
# A whole prompt is prefilled in one step on the CPU, so this also bounds the memory of a step.
CPU_BATCHED_TOKENS = 4096


class VLLMEngine:
    """Samples with vLLM, in this process; see `sgpu.engines.base.Engine`.

    ``token_ids`` and ``token_logprobs`` hold the end-of-sequence token when the model wrote one, as vLLM
    reports it. Several threads may call `sample` and `next_token_logprobs`: their requests run together.
    Equal prompts and seeds give equal answers when they come in the same batch, in any order. In another
    batch the last bits of the logits differ, and now and then a word does, on CPU and GPU: answers are to be
    stored, not drawn again. Of ``EngineConfig.options`` ``chat_options`` go to the chat template and
    ``processor_options`` to the image processor; the others are passed on to `vllm.LLM`.

    On the CPU the engine lives in a thread of this process and seeds its global generators.
    """

    name = "vllm"
    package = "vllm"

    def __init__(self, config: EngineConfig) -> None:
        self.config = config = locate_weights(config)
        options = dict(config.options)
        options.pop("prompts_together", None)  # of the transformers engine: vLLM batches by itself
        self._chat_options: Any = options.pop("chat_options", {})
        processor_options: Any = options.pop("processor_options", {})
        if processor_options:
            options["mm_processor_kwargs"] = processor_options
        arguments = _engine_arguments(config) | options
        self._engine: ContinuousBatching | None = ContinuousBatching(lambda: _build(config, arguments))
        self._tokenizer: Any = self._engine.llm.get_tokenizer()
        model_config = self._engine.llm.llm_engine.model_config.hf_config
        self._template: Any = self._tokenizer
        if reads_images(model_config):
            self._template = load_front(config, model_config, processor_options)
        if config.prompt_form:
            check_prompt_form(config.prompt_form, lambda prompt: self._render([prompt], 1)[0].text)

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        """See `sgpu.engines.base.Engine.sample`."""
        from vllm import SamplingParams

        rendered = self._render(prompts, sampling.max_tokens)
        # vLLM refuses n > 1 at temperature 0, where all answers are the same anyway.
        n_drawn = sampling.n if sampling.temperature > 0 else 1
        # logprobs=0: of each position only the chosen token, which is all the methods need.
        parameters = [
            SamplingParams(
                n=n_drawn,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                repetition_penalty=sampling.repetition_penalty,
                max_tokens=sampling.max_tokens,
                stop=list(sampling.stop),
                include_stop_str_in_output=True,
                logprobs=0,
                seed=prompt.seed,
            )
            for prompt in prompts
        ]
        outputs = self._generate(rendered, parameters)
        return [
            Generation(
                prompt_sha256=prompt.sha256,
                answers=tuple(
                    _answer(item, sampling.stop) for item in sorted(output.outputs, key=lambda o: o.index)
                )
                * (sampling.n // n_drawn),
                n_prompt_tokens=len(output.prompt_token_ids),
            )
            for prompt, output in zip(rendered, outputs, strict=True)
        ]

    def next_token_logprobs(self, prompts: Sequence[Prompt], candidates: Sequence[str]) -> list[list[float]]:
        """See `sgpu.engines.base.Engine.next_token_logprobs`. Exact, over the whole vocabulary."""
        from vllm import SamplingParams

        ids = candidate_token_ids(self._tokenizer, candidates)
        wanted = sorted({token for token in ids if token is not None})
        if not wanted:
            return [[float("-inf")] * len(candidates) for _ in prompts]
        parameters = SamplingParams(max_tokens=1, temperature=0.0, logprob_token_ids=wanted)
        outputs = self._generate(self._render(prompts, 1), [parameters] * len(prompts))
        return [
            [
                float("-inf") if token is None else float(output.outputs[0].logprobs[0][token].logprob)
                for token in ids
            ]
            for output in outputs
        ]

    def close(self) -> None:
        """See `sgpu.engines.base.Engine.close`."""
        if self._engine is None:
            return
        self._engine.close()
        self._engine = None
        gc.collect()

    def _render(self, prompts: Sequence[Prompt], max_new_tokens: int) -> list[RenderedPrompt]:
        limit = self.config.max_model_len - max_new_tokens
        return render_all(self._template, self._tokenizer, prompts, self._chat_options, limit)

    def _generate(self, rendered: Sequence[RenderedPrompt], parameters: Sequence[Any]) -> list[Any]:
        inputs: list[dict[str, Any]] = [{"prompt_token_ids": list(text.token_ids)} for text in rendered]
        for entry, text in zip(inputs, rendered, strict=True):
            if text.image is not None:
                entry["multi_modal_data"] = {"image": text.image}
        from vllm.v1.engine.exceptions import EngineDeadError

        if self._engine is None:
            raise EngineDiedError("this engine was closed")
        try:
            return self._engine.generate(inputs, parameters)
        except EngineDeadError as error:
            raise EngineDiedError(f"vLLM's engine process is gone: {error}") from error


def _build(config: EngineConfig, arguments: dict[str, Any]) -> Any:
    import vllm

    if on_cpu(config.device):
        from sgpu.engines import cpu_sampler

        cpu_sampler.install()
    return vllm.LLM(**arguments)


def _engine_arguments(config: EngineConfig) -> dict[str, Any]:
    """Arguments of `vllm.LLM`; everything that differs between CPU and GPU is here."""
    # vLLM reads these when it is imported or when an engine starts.
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # vLLM 0.32 would compile FlashInfer's sampler at its warm-up (vllm #49497), which an image without nvcc
    # cannot, and which seeded requests never use.
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    common: dict[str, Any] = {
        "model": config.model,
        "revision": config.revision,
        "dtype": config.dtype,
        "max_model_len": config.max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "tensor_parallel_size": config.tensor_parallel_size,
        # Otherwise a checkpoint's generation_config.json changes the sampling without a word.
        "generation_config": "vllm",
        "logprobs_mode": "raw_logprobs",
        "disable_log_stats": True,
        "limit_mm_per_prompt": {"image": 1, "video": 0},  # otherwise its memory is set aside for videos
    }
    if not on_cpu(config.device):
        if config.tensor_parallel_size == 1:
            return common | {"distributed_executor_backend": None}
        # Inside a Ray placement group vLLM would otherwise start Ray workers of its own. The fusion makes it
        # compile FlashInfer's communication on Hopper, which an image without nvcc cannot.
        return common | {
            "distributed_executor_backend": "mp",
            "compilation_config": {"pass_config": {"fuse_allreduce_rms": False}},
        }
    # In one process: a faster start, no orphans, and draws that do not depend on the history of calls.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    # Several engines may share the machine: leave placement to the system, count to OMP_NUM_THREADS.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    return common | {
        "enforce_eager": True,
        # A split prefill of a seeded request ends the engine (a CUDA-only generator call).
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(CPU_BATCHED_TOKENS, config.max_model_len),
        # Answers to one prompt share its blocks only if the prompt fills at least one.
        "block_size": 32,
        "kv_cache_memory_bytes": GIB,
    }


def _answer(output: Any, stop: Sequence[str]) -> Answer:
    return Answer(
        text=clean_answer(output.text, stop),
        raw_text=output.text,
        token_ids=tuple(output.token_ids),
        token_logprobs=tuple(
            float(position[token].logprob)
            for token, position in zip(output.token_ids, output.logprobs, strict=True)
        ),
        finish_reason=str(output.finish_reason),
    )


@dataclass(eq=False)  # a call is itself alone, so that calls can be keys
class _Call:
    inputs: Sequence[Any]
    parameters: Sequence[Any]
    outputs: dict[int, Any] = field(default_factory=dict)
    result: Future[list[Any]] = field(default_factory=Future)
    request_ids: list[str] = field(default_factory=list)


class ContinuousBatching:
    """Builds a `vllm.LLM` in a thread of its own and steps it there for all callers.

    Their requests run in one batch, and no call waits for another. A stage hands its engine one block of
    questions at a time: were blocks generated one after the other, the engine would idle at the end of each,
    when few answers are still being written.

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
