"""The table of answering and judging models: weights, licence, limits and prompt form; forms of questions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sgpu.models.weights import MadeWeights


@dataclass(frozen=True, kw_only=True)
class ImageLimits:
    """How images reach a model: what larger ones are scaled down to, and what its processor is told.

    ``tokens`` names the rule of `sgpu.plan.image_tokens` that says what one image costs.
    """

    max_pixels: int
    tokens: str
    processor_options: dict[str, object] = field(default_factory=dict)


EMBEDDED = "embedded:"


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """One answering or judging model.

    ``source`` is a Hugging Face id, a local folder, or ``embedded:NAME`` for weights in a pip package. With
    ``weights``, which a plug-in's card may have, it is only a label.
    ``revision`` is a commit of the Hub; None means its main branch, resolved and recorded at run time.
    ``memory_gib`` is what the weights take at ``dtype``, without the key-value cache.
    ``chat_options`` are passed to the chat template, for prompts that must not change from day to day; their
    ``chat_template`` stands for that of a base model, which has none.
    ``prompt_form`` names the family in `sgpu.engines.prompts` that the checkpoint's chat template
    must render like; None for a checkpoint of one's own. ``checkpoint_repetition_penalty`` is what its
    generation_config.json carries and what we do not apply unless a study sets it.
    """

    name: str
    source: str
    licence: str
    memory_gib: float
    revision: str | None = None
    engine: str = "vllm"
    dtype: str = "bfloat16"
    max_model_len: int = 2048
    max_num_seqs: int = 320
    tensor_parallel_size: int = 1
    gated: bool = False
    chat_options: dict[str, object] = field(default_factory=dict)
    prompt_form: str | None = None
    checkpoint_repetition_penalty: float = 1.0
    parameters: float = 0.0  # in units of 1e9, for the planner
    kv_bytes_per_token: int = 0
    shape: tuple[int, int] | None = None  # decoder layers and length of a hidden state, for the planner
    image: ImageLimits | None = None  # None: reads text only
    paper_name: str = ""  # what the paper calls it, if not the same
    weights: MadeWeights | None = None

    @property
    def packaged(self) -> bool:
        """Whether the weights are made on this machine from an installed package, without the Hub."""
        return self.weights is not None or self.source.startswith(EMBEDDED)


# Llama 3.1's chat template writes a date into the system prompt; in some copies it is today's.
_LLAMA_31: dict[str, object] = {"date_string": "26 Jul 2024"}

# The checkpoint allows 12.8 million pixels, and so 16,000 tokens for one photograph. These two names and not
# `size`, because the checkpoint's own file carries them and they override `size`.
_QWEN_IMAGES = ImageLimits(
    max_pixels=1280 * 28 * 28,
    tokens="qwen2.5-vl",
    processor_options={"min_pixels": 56 * 56, "max_pixels": 1280 * 28 * 28},
)

_QWEN25_VL_7B = ModelCard(
    name="qwen2.5-vl-7b-instruct",
    paper_name="Qwen2.5-VL-7B",
    source="Qwen/Qwen2.5-VL-7B-Instruct",
    revision="cc594898137f460bfe9f0759e9844b3ce807cfb5",
    licence="Apache-2.0",
    memory_gib=15.4,
    parameters=8.29,
    shape=(28, 3584),
    kv_bytes_per_token=56 * 1024,
    max_model_len=4096,
    prompt_form="qwen2.5-vl",
    checkpoint_repetition_penalty=1.05,
    image=_QWEN_IMAGES,
)
_QWEN25_3B = ModelCard(
    name="qwen2.5-3b-instruct",
    source="Qwen/Qwen2.5-3B-Instruct",
    revision="aa8e72537993ba99e69dfaafa59ed015b17504d1",
    licence="Qwen Research (non-commercial)",
    memory_gib=5.8,
    parameters=3.09,
    shape=(36, 2048),
    kv_bytes_per_token=36 * 1024,
    prompt_form="qwen2.5",
    checkpoint_repetition_penalty=1.05,
)
_LLAMA_70B = ModelCard(
    name="llama-3.1-70b-instruct",
    source="meta-llama/Llama-3.1-70B-Instruct",
    revision="1605565b47bb9346c5515c34102e054115b4f98b",
    licence="Llama 3.1 Community",
    gated=True,
    memory_gib=131.5,
    parameters=70.6,
    shape=(80, 8192),
    kv_bytes_per_token=320 * 1024,
    tensor_parallel_size=4,
    chat_options=_LLAMA_31,
    prompt_form="llama-3.1",
)

CARDS = (
    ModelCard(
        name="smollm2-135m-instruct",
        source="embedded:smollm2-135m-instruct",
        licence="Apache-2.0",
        memory_gib=0.3,
        parameters=0.135,
        shape=(30, 576),
        kv_bytes_per_token=30 * 3 * 64 * 4,
        max_model_len=1024,
        prompt_form="smollm2",
    ),
    replace(
        _QWEN25_VL_7B,
        name="qwen2.5-vl-3b-instruct",
        paper_name="Qwen2.5-VL-3B",
        source="Qwen/Qwen2.5-VL-3B-Instruct",
        revision="66285546d2b821cf421d4f5eb2576359d3770cd3",
        licence="Qwen Research (non-commercial)",
        memory_gib=7.0,
        parameters=3.75,
        shape=(36, 2048),
        kv_bytes_per_token=36 * 1024,
    ),
    _QWEN25_VL_7B,
    ModelCard(
        name="llava-1.6-mistral-7b",
        paper_name="llava-mistral-7b",
        source="llava-hf/llava-v1.6-mistral-7b-hf",
        revision="2424fdd47412fccc66d91719126b420e9fbd7065",
        licence="Apache-2.0",
        memory_gib=14.1,
        parameters=7.57,
        shape=(32, 4096),
        kv_bytes_per_token=128 * 1024,
        max_model_len=4096,
        prompt_form="llava-next-mistral",
        # Twice the pixels of its largest grid (672 x 672), so nothing that it could see is lost.
        image=ImageLimits(max_pixels=1280 * 28 * 28, tokens="llava-next"),
    ),
    ModelCard(
        name="idefics2-8b-chatty",
        source="HuggingFaceM4/idefics2-8b-chatty",
        revision="8e65868b394317b973bd61db3b08e6478ebeedbf",
        licence="Apache-2.0",
        engine="transformers",  # vLLM has no Idefics2
        memory_gib=15.6,
        parameters=8.4,
        shape=(32, 4096),
        kv_bytes_per_token=128 * 1024,
        prompt_form="idefics2",
        # Four crops and the whole image, each at most 980 x 980: on in the checkpoint's file, off as the
        # class's default, so that it must be said.
        image=ImageLimits(
            max_pixels=4 * 980 * 980, tokens="idefics2", processor_options={"do_image_splitting": True}
        ),
    ),
    _QWEN25_3B,
    replace(
        _QWEN25_3B,
        name="qwen2.5-32b-instruct",
        paper_name="Qwen-2.5-32B",
        source="Qwen/Qwen2.5-32B-Instruct",
        revision="5ede1c97bbab6ce5cda5812749b4c0bdf79b18dd",
        licence="Apache-2.0",
        memory_gib=61.0,
        parameters=32.5,
        shape=(64, 5120),
        kv_bytes_per_token=256 * 1024,
        tensor_parallel_size=2,
    ),
    replace(
        _LLAMA_70B,
        name="llama-3.1-8b-instruct",
        source="meta-llama/Llama-3.1-8B-Instruct",
        revision="0e9e39f249a16976918f6564b8830bc894c89659",
        memory_gib=15.0,
        parameters=8.03,
        shape=(32, 4096),
        kv_bytes_per_token=128 * 1024,
        tensor_parallel_size=1,
    ),
    # The base model, which reads plain text: the question as the study words it, without roles or marks.
    replace(
        _LLAMA_70B,
        name="llama-3.1-8b",
        source="meta-llama/Llama-3.1-8B",
        revision="d04e592bb4f6aa9cfee91e2e20afa771667e1d4b",
        memory_gib=15.0,
        parameters=8.03,
        shape=(32, 4096),
        kv_bytes_per_token=128 * 1024,
        tensor_parallel_size=1,
        chat_options={"chat_template": "{{ bos_token }}{{ messages[-1].content }}"},
        prompt_form="llama-3.1-base",
    ),
    replace(_LLAMA_70B, paper_name="Llama-3.1-70B"),
    # Weights and activations in 8 bits: another judge than the 70B in bfloat16, to be compared with it first.
    replace(
        _LLAMA_70B,
        name="llama-3.1-70b-instruct-fp8",
        source="RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic",
        revision=None,
        gated=False,
        memory_gib=67.7,
        tensor_parallel_size=2,
    ),
    replace(
        _LLAMA_70B,
        name="llama-3.3-70b-instruct",
        paper_name="Llama-3.3-70B",
        source="meta-llama/Llama-3.3-70B-Instruct",
        revision="6f6073b423013f6a7d4d9f39144961bfbfbc386b",
        licence="Llama 3.3 Community",
    ),
    replace(
        _LLAMA_70B,
        name="llama-3.3-70b-instruct-fp8",
        source="RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic",
        revision="ddb4128556dfcff99e0c41aee159ea6c3e655dcd",
        licence="Llama 3.3 Community",
        gated=False,
        memory_gib=67.7,
        tensor_parallel_size=2,
    ),
)


# How a question is asked, by name: the paper gives no answering prompt, so every one is written here.
# ``{question}`` is the question's text; ``{classes}`` the class names of a classification data set, separated
# by commas. A study may name a form or write its own template.
PROMPT_FORMS: dict[str, str] = {
    "plain": "{question}",
    "text-qa": "Answer the following question as briefly as possible.\nQuestion: {question}\nAnswer:",
    "vqa": "{question}\nAnswer the question using a single word or phrase.",
    "vqa-unanswerable": (
        "{question}\nWhen the provided information is insufficient, respond with 'Unanswerable'.\n"
        "Answer the question using a single word or phrase."
    ),
    "medical-vqa": (
        "This is a medical image.\n{question}\nAnswer the question using a single word or phrase."
    ),
    "classification-closed": "{question} Answer with one of: {classes}.",
    "classification-open": "{question} Answer with a short noun phrase.",
    "chain-of-thought": "{question}\nSolve the problem step by step. End with 'The final answer is N'.",
}
