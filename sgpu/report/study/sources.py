"""Which weights and data a study rests on: their ids, revisions, licences, and whether access is gated."""

from __future__ import annotations

from sgpu.addresses import without_credentials
from sgpu.encoders.cards import CARDS
from sgpu.models.weights import ENCODERS, GGUF_MODELS, TRAINED_MODELS, PackagedFile
from sgpu.report.study.data import SourceRow
from sgpu.runtime.run import Run
from sgpu.storage.store import Partition
from sgpu.study.data_specs import QuestionsSpec
from sgpu.study.models import ModelCard, card_of, model_card

LATEST = "main, as cached"


def sources(run: Run) -> list[SourceRow]:
    """Data sets first, then models, judges, and the encoder."""
    rows = [_data(run, spec) for spec in run.study.datasets if isinstance(spec, QuestionsSpec)]
    if rows:
        rows += [_model("model", card_of(m), m.revision, m.base_url) for m in run.study.models]
    judges = [card for d in run.study.datasets for card in run.study.judge_of(d.name).models]
    rows += [_model("judge", model_card(name), None) for name in dict.fromkeys(judges)]
    return [*rows, _encoder(run.study.encoder.name)]


def _encoder(name: str) -> SourceRow:
    card = CARDS.get(name)
    if card is None:
        return SourceRow(
            role="encoder", name=name, source="local", revision="", licence="unknown", gated=False
        )
    packaged = ENCODERS.get(name)
    return SourceRow(
        role="encoder", name=name, source=packaged.distribution if packaged else card.hub_id,
        revision=_pinned(packaged) if packaged else card.revision or LATEST, licence=card.licence,
        gated=card.gated,
    )  # fmt: skip


def _data(run: Run, spec: QuestionsSpec) -> SourceRow:
    manifest = run.store.require("questions", Partition.of(dataset=spec.name)).manifest
    source = "package" if spec.card.packaged else ", ".join(files.repo for files in spec.card.hub)
    return SourceRow(
        role="data set", name=spec.name, source=str(spec.path.name) if spec.path else source,
        revision=str(manifest.get("revision", "")), licence=str(manifest.get("licence", spec.card.licence)),
        gated=spec.card.gated,
    )  # fmt: skip


def _model(role: str, card: ModelCard, revision: str | None, server: str | None = None) -> SourceRow:
    if card.engine == "openai":
        where = f" at {without_credentials(server)}" if server else ""
        return SourceRow(
            role=role, name=card.name, source=f"{card.source}{where}", revision="as served",
            licence=card.licence, gated=False,
        )  # fmt: skip
    packages = {**GGUF_MODELS, **TRAINED_MODELS}
    packaged = packages.get(card.source.partition(":")[2]) if card.packaged else None
    return SourceRow(
        role=role, name=card.name, source=packaged.distribution if packaged else card.source,
        revision=_pinned(packaged) if packaged else revision or card.revision or LATEST,
        licence=card.licence, gated=card.gated,
    )  # fmt: skip


def _pinned(packaged: PackagedFile) -> str:
    return f"sha256 {packaged.sha256[:16]}"
