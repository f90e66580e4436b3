"""Takes the control tokens of chat templates out of a text, with the turns that they open."""

from __future__ import annotations

import re

from sgpu.judges.folding import fold, skeleton
from sgpu.judges.prompt import GREATER, LESS

GONE = "\ufffe"  # stands where something was taken out; `folding.without_invisible` leaves none in a text

_TAG = re.compile(
    rf"(?:{LESS}\s?){{1,2}}(?P<bar>[|｜])?\s?(?P<close>/?)\s?(?P<name>[\w ▁]{{1,30}}?)"
    rf"\s?(?:[|｜]\s?)?{GREATER}{{1,2}}"
    r"|\[\s?(?P<close_square>/?)\s?(?P<square>\w{1,20})\s?\]",
    re.IGNORECASE,
)


def _names(text: str) -> frozenset[str]:
    return frozenset(skeleton(name) for name in text.split())


_TAGS = _names(
    "answer s bos eos pad unk eot endoftext endofutterance startofturn endofturn sys imstart imend eotid "
    "image system instructions"
)
_SQUARE_TAGS = _names("inst sys toolcalls availabletools toolresults")
_TURN_ENDS = _names("imend eotid eomid end endoftext endofturn endofutterance eos /s")
_TURNS = {
    **dict.fromkeys(_names("imstart startheaderid startofturn start"), _TURN_ENDS),
    **dict.fromkeys(_names("|user |assistant |system"), _TURN_ENDS),
    skeleton("inst"): _names("/inst"),
    **{skeleton(name): _names(f"/{name}") for name in ("sys", "system", "instructions")},
}


def without_turns(text: str) -> tuple[str, list[str]]:
    """Without chat turns, control tokens and the marks of the prompt; and the passages that went."""
    kept, removed = [], []
    at, opened, ends = 0, 0, frozenset[str]()
    for tag in _TAG.finditer(text):
        name = _tag_name(tag)
        if not name or (ends and name not in ends):
            continue
        if not ends:
            kept.append(f"{text[at : tag.start()]}\n{GONE}\n")
            opened, ends = tag.start(), _TURNS.get(name, ends)
        else:
            ends = frozenset()
        if not ends:
            removed.append(text[opened : tag.end()])
        at = tag.end()
    if ends:
        return "".join(kept), [*removed, text[opened:]]
    return "".join([*kept, text[at:]]), removed


def _tag_name(tag: re.Match[str]) -> str:
    """The name of a control token as `_TURNS` and `_TURN_ENDS` write it; empty if it is none."""
    inside = tag["square"] or tag["name"]
    name = skeleton(fold(inside)[0].replace(" ", "").replace("▁", ""))
    closing = tag["close"] or tag["close_square"] or ""
    if tag["square"]:
        return closing + name if name in _SQUARE_TAGS else ""
    if tag["bar"]:
        return f"|{name}" if f"|{name}" in _TURNS else closing + name
    return closing + name if name in _TAGS else ""
