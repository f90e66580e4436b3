"""Small sources of the vision question-answering data sets, in the schema of the real files.

Load them with ``Request(folder, check_rows=False)``: the real ones are larger.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

Layout = Literal["hub", "raw"]
IMAGE_STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
PATTERNS = (
    ("red",) * 6 + ("blue",) * 3 + ("dark red",),
    ("yes",) * 8 + ("no",) * 2,
    ("unanswerable",) * 7 + ("cup",) * 3,
    ("two",) * 4 + ("2",) * 4 + ("three",) * 2,
)


def png(shade: int, size: int = 8) -> bytes:
    """A grey square; another ``shade`` (0 to 255) gives other bytes."""
    rows = b"".join(b"\x00" + bytes([shade % 256]) * size for _ in range(size))
    header = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    # Level 0 stores without compressing, so that the bytes are the same with every zlib.
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 0)), (b"IEND", b""))
    chunks = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def ten_answers(index: int) -> list[str]:
    """What ten annotators say of question ``index``."""
    return list(PATTERNS[index % len(PATTERNS)])


def vqa_answers(texts: Sequence[Any]) -> list[dict[str, Any]]:
    """Answers as VQA v2 files hold them."""
    return [
        {"answer": text, "answer_confidence": "yes", "answer_id": number}
        for number, text in enumerate(texts, start=1)
    ]


def write_json(path: Path, content: object, zipped: bool = False) -> Path:
    """``path``, or ``path``.zip with the file inside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if zipped:
        path = path.with_name(path.name + ".zip")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(path.name.removesuffix(".zip"), json.dumps(content))
    else:
        path.write_text(json.dumps(content), encoding="utf-8")
    return path


def write_images(folder: Path, name: str, images: Mapping[str, bytes], zipped: bool = False) -> Path:
    """Images in the folder ``name``, or in ``name``.zip as the archives of COCO and VizWiz have them."""
    if zipped:
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            archive.writestr(f"{name}/", b"")
            for file, data in images.items():
                archive.writestr(f"{name}/{file}", data)
        return folder / f"{name}.zip"
    (folder / name).mkdir(parents=True, exist_ok=True)
    for file, data in images.items():
        (folder / name / file).write_bytes(data)
    return folder / name


def write_hub(
    file: Path, columns: Mapping[str, Iterable[Any]], images: Iterable[Any], **options: Any
) -> Path:
    """A Parquet file with a column ``image`` as the Hub writes it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    cells = [
        cell if cell is None or isinstance(cell, dict) else {"bytes": cell, "path": None} for cell in images
    ]
    table = pa.table({"image": pa.array(cells, IMAGE_STRUCT), **{k: list(v) for k, v in columns.items()}})
    pq.write_table(table, file, **options)
    return file


def vqa_pair(n: int, first_image: int, per_image: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Contents of a file of questions and of its annotations."""
    questions, annotations = [], []
    for index in range(n):
        image_id = first_image + index // per_image
        question_id = image_id * 1000 + index % per_image
        questions.append(
            {"image_id": image_id, "question": f"What is it ({index})?", "question_id": question_id}
        )
        annotations.append(
            {
                "image_id": image_id,
                "question_id": question_id,
                "answer_type": "yes/no" if index % 4 == 1 else "other",
                "answers": vqa_answers(ten_answers(index)),
            }
        )
    info = {"info": {"version": "1.0"}, "data_type": "mscoco"}
    return {**info, "questions": questions}, {**info, "annotations": annotations}


def write_advqa(folder: Path, n: int = 24, zipped: bool = False) -> Path:
    """AdVQA: two questions an image, named as in COCO 2017."""
    questions, annotations = vqa_pair(n, first_image=139, per_image=2)
    write_json(folder / "v1_OpenEnded_mscoco_val2017_advqa_questions.json", questions, zipped)
    write_json(folder / "v1_mscoco_val2017_advqa_annotations.json", annotations, zipped)
    ids = {entry["image_id"] for entry in questions["questions"]}
    write_images(folder, "val2017", {f"{i:012d}.jpg": png(i) for i in sorted(ids)}, zipped)
    return folder


def write_vqa_rad(folder: Path, n_train: int = 24, n_test: int = 8) -> Path:
    """VQA-RAD: three questions an image in train; every other test image is a train image."""
    for split, n in (("train", n_train), ("test", n_test)):
        shades = [i // 3 if split == "train" else (i if i % 2 else 200 + i) for i in range(n)]
        write_hub(
            folder / "data" / f"{split}-00000-of-00001-0123456789abcdef.parquet",
            {
                "question": [f"is there a finding in {split} {i}?" for i in range(n)],
                "answer": [("Yes", "left lung", "no")[i % 3] for i in range(n)],
            },
            [png(shade) for shade in shades],
        )
    return folder


def write_ok_vqa(
    folder: Path, n_train: int = 24, n_test: int = 12, layout: Layout = "hub", zipped: bool = False
) -> Path:
    """OK-VQA with the same questions in either layout; answers of the train mirror are mappings."""
    for pool, coco, n, first in (("train", "train2014", n_train, 100), ("test", "val2014", n_test, 500_000)):
        questions, annotations = vqa_pair(n, first_image=first, per_image=1)
        for entry in annotations["annotations"]:
            for answer in entry["answers"]:
                answer["raw_answer"] = f"a {answer['answer']}"
        ids = [entry["image_id"] for entry in questions["questions"]]
        if layout == "raw":
            write_json(folder / f"OpenEnded_mscoco_{coco}_questions.json", questions, zipped)
            write_json(folder / f"mscoco_{coco}_annotations.json", annotations, zipped)
            write_images(folder, coco, {f"COCO_{coco}_{i:012d}.jpg": png(i) for i in ids}, zipped)
            continue
        answers: list[Any] = [entry["answers"] for entry in annotations["annotations"]]
        columns: dict[str, list[Any]] = {
            "question_id": [entry["question_id"] for entry in questions["questions"]],
            "question": [entry["question"] for entry in questions["questions"]],
            "answers": answers,
        }
        if pool == "train":
            columns |= {"id_image": ids}
        else:
            columns["question_id"] = [str(value) for value in columns["question_id"]]
            columns["answers"] = [[entry["answer"] for entry in ten] for ten in answers]
            columns |= {"question_type": ["one"] * n, "answer_type": ["other"] * n}
        split = "train" if pool == "train" else "val2014"
        file = folder / pool / "data" / f"{split}-00000-of-00001.parquet"
        write_hub(file, columns, [png(i) for i in ids])
    return folder


def write_vizwiz(folder: Path, n: int = 24, layout: Layout = "raw", zipped: bool = False) -> Path:
    """VizWiz: the train questions of the authors, or the validation questions of the Hub."""
    split = "train" if layout == "raw" else "val"
    names = [f"VizWiz_{split}_{i:08d}.jpg" for i in range(n)]
    texts = [f"Can you tell me what this is? ({i})" for i in range(n)]
    if layout == "hub":
        columns = {
            "question_id": names,
            "question": texts,
            "answers": [ten_answers(i) for i in range(n)],
            "category": ["unanswerable" if i % 4 == 2 else "other" for i in range(n)],
        }
        write_hub(folder / "data" / "val-00000-of-00001.parquet", columns, [png(i) for i in range(n)])
        return folder
    entries = [
        {
            "image": names[i],
            "question": texts[i],
            "answers": [{"answer": text, "answer_confidence": "yes"} for text in ten_answers(i)],
            "answer_type": "unanswerable" if i % 4 == 2 else "other",
            "answerable": int(i % 4 != 2),
        }
        for i in range(n)
    ]
    if zipped:
        with zipfile.ZipFile(folder / "Annotations.zip", "w") as archive:
            archive.writestr("Annotations/train.json", json.dumps(entries))
            archive.writestr("Annotations/val.json", "[]")
    else:
        write_json(folder / "train.json", entries)
    write_images(folder, "train", {name: png(i) for i, name in enumerate(names)}, zipped)
    return folder
