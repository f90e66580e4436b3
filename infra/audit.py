"""`make audit`: looks up every pinned package in PyPI's database of vulnerabilities, with pip-audit.

pip-audit itself ends well where it could look nothing up; a package that was not looked up is told here, and
is no success. Exit codes: 0 all were looked up and nothing is known against them, 1 a vulnerability is known,
2 the list of exceptions is wrong, 3 not all could be looked up (no network, or an unknown name).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

EXCEPTIONS = Path(__file__).with_name("audit-exceptions.txt")
FOUND, WRONG_LIST, NOT_LOOKED_UP = 1, 2, 3


def main(locks: Sequence[str], today: date, exceptions: Path = EXCEPTIONS) -> int:
    ignored, problems = read_exceptions(exceptions.read_text(encoding="utf-8").splitlines(), today)
    if problems:
        return _told(problems, WRONG_LIST)
    found, missing, count = [], [], 0
    for lock in locks:
        packages = looked_up(lock, ignored)
        if packages is None:
            return _told([f"{lock}: pip-audit could not do its work; see above"], NOT_LOOKED_UP)
        count += len(packages)
        found += [line for one in packages for line in vulnerabilities(lock, one)]
        missing += [
            f"{lock}: {one['name']}: {one['skip_reason']}" for one in packages if "skip_reason" in one
        ]
    if found:
        return _told(found, FOUND)
    if missing:
        told = [*missing[:5], f"{len(missing)} of {count} packages could not be looked up"]
        return _told(told, NOT_LOOKED_UP)
    print(f"{count} packages, nothing is known against them ({len(ignored)} exceptions)")
    return 0


def read_exceptions(lines: Iterable[str], today: date) -> tuple[list[str], list[str]]:
    """The vulnerabilities that are passed over, and what is wrong with the list.

    A line is `ID YYYY-MM-DD why it does not concern us`; from the date on it has to be thought of again.
    """
    ids, problems = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, *rest = line.split(maxsplit=2)
        try:
            until = date.fromisoformat(rest[0])
        except (IndexError, ValueError):
            problems.append(f"exception in line {number}: write `ID YYYY-MM-DD reason`")
            continue
        if len(rest) < 2:
            problems.append(f"exception in line {number}: {name} has no reason")
        elif until <= today:
            problems.append(f"exception in line {number}: {name} was to be thought of again on {until}")
        ids.append(name)
    return ids, problems


def looked_up(lock: str, ignored: Sequence[str]) -> list[dict[str, Any]] | None:
    """What pip-audit says of each pinned package; None where it said nothing."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", lock, "--no-deps", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off", "--timeout", "30"]
    command += [part for name in ignored for part in ("--ignore-vuln", name)]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        return list(json.loads(done.stdout)["dependencies"])
    except (ValueError, KeyError, TypeError):
        print(*done.stderr.splitlines()[-3:], sep="\n", file=sys.stderr)
        return None


def vulnerabilities(lock: str, package: dict[str, Any]) -> list[str]:
    """A line for each that is known of a package."""
    return [
        f"{lock}: {package['name']} {package['version']}: {one['id']}, "
        f"fixed in {', '.join(one.get('fix_versions', [])) or 'no version'}"
        for one in package.get("vulns", [])
    ]


def _told(lines: Sequence[str], code: int) -> int:
    print(*lines, sep="\n", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], datetime.now(UTC).date()))
