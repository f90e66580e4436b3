"""What all pages share: numbers, words, pictures, and the environment of their templates."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import yaml

from sgpu.report.look import numbers
from sgpu.visible import visible


def template(name: str, **filters: Callable[..., Any]) -> jinja2.Template:
    """One of ``report/templates``: it escapes what it is given, and fails for what it is not.

    All know the filters for numbers and text of others; ``filters`` are those of one page.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent.parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shared = (
        numbers.decimals,
        numbers.interval,
        numbers.percent,
        numbers.count,
        numbers.format_signed,
        numbers.seconds,
    )
    environment.filters.update({write.__name__: write for write in shared})
    environment.filters.update(p_value=numbers.probability, visible=visible, **filters)
    environment.globals["zip"] = zip
    return environment.get_template(name)


def as_yaml(settings: Mapping[str, Any]) -> str:
    """Settings as a page shows them, whatever objects they hold."""
    plain = json.loads(json.dumps(dict(settings), default=str))
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)
