"""A share of rows that rose: how far, and by chance?"""

from __future__ import annotations

from scipy.stats import hypergeom

from sgpu.watch.difference import Difference


def compare_shares(part: int, rows: int, reference_part: int, reference_rows: int) -> Difference:
    """Today's share less that before, with the one-sided p-value of Fisher's exact test for a rise.

    ``part`` of ``rows`` today, ``reference_part`` of ``reference_rows`` before, both with a row at least.
    """
    rise = part / rows - reference_part / reference_rows
    p = hypergeom.sf(part - 1, rows + reference_rows, part + reference_part, rows)
    return Difference(rise, rise, float(p))
