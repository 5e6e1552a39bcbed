"""How notebooks show solutions, outcomes and certificates: a table, and the course of an outer iteration as a picture."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from onestep._core import Certificate

if TYPE_CHECKING:
    from onestep._core import ManySolutions, Outcome, Solution, Status

_MOST_ENTRIES = 8
_MOST_PROBLEMS = 10


def of_solution(s: Solution) -> str:
    cost = s.statistics
    state = s.state
    rows = [("status", _status(s.status, s.message))]
    rows.append(("cost", f"{_count(cost.iterations, 'iteration')}, {cost.seconds:.3g} s"))
    rows += [("x" if i == 0 else f"part {i}", _array(part)) for i, part in enumerate(state)]
    return _table("Solution", rows)


def of_many(s: ManySolutions) -> str:
    statuses = s.statuses
    kinds = {status: statuses.count(status) for status in dict.fromkeys(statuses)}
    rows = [("problems", str(len(s)))]
    rows += [(f"{number} of them", _status(status, status.explanation)) for status, number in kinds.items()]
    failed = s.failed
    if failed:
        more = f" and {len(failed) - _MOST_PROBLEMS} more" if len(failed) > _MOST_PROBLEMS else ""
        rows.append(("not solved", html.escape(", ".join(map(str, failed[:_MOST_PROBLEMS])) + more)))
    return _table("ManySolutions", rows)


def of_certificate(c: Certificate) -> str:
    if c.basis is Certificate.Basis.refused:
        rows = [("bound", "none: refused"), ("because", html.escape(c.reason))]
    else:
        rows = [
            ("error", f"at most {_up(c.bound)} ({c.basis.name}), {_up(c.relative)} of the derivative"),
            ("mostly", html.escape(c.dominant.name.replace("_", " "))),
        ]
        if not math.isnan(c.estimate):
            rows.append(("most likely", f"{c.estimate:.2g}"))
    if c.advice:
        rows.append(("advice", html.escape(c.advice)))
    return _table("Certificate", rows)


def of_outcome(o: Outcome) -> str:
    rows = [("status", _status(o.status, o.message)), ("objective", f"{o.value:.6g}")]
    norm = "unknown" if math.isnan(o.norm) else f"{o.norm:.2g}"
    if math.isfinite(o.bound):
        norm += f", wrong by at most {_up(o.bound)}"
    rows += [("hypergradient", norm), ("cost", f"{_count(o.iterations, 'iteration')}, {o.seconds:.3g} s")]
    rows += [(f"theta[{i}]" if len(o.theta) > 1 else "theta", _array(t)) for i, t in enumerate(o.theta)]
    picture = _course([i.value for i in o.history])
    if picture:
        rows.append(("course", picture))
    return _table("Outcome", rows)


def _up(bound: float) -> str:
    """With two digits, rounded up: what is printed is a bound, too."""
    text = f"{bound:.1e}"
    if float(text) < bound:
        unit = Decimal(text).as_tuple().exponent
        text = str(Decimal(text) + Decimal(1).scaleb(int(unit)))
    return f"{float(text):.2g}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _status(status: Status, sentence: str) -> str:
    mark = "✓" if status.is_solution else "✗"
    return f'<span title="{html.escape(sentence, quote=True)}">{mark} {html.escape(status.name.replace("_", " "))}</span>'


def _array(a: Any) -> str:
    a = np.asarray(a)
    entries = ", ".join(f"{entry:.6g}" for entry in a.ravel()[:_MOST_ENTRIES])
    if a.ndim == 0:
        return f"<code>{entries}</code>"
    shape = " × ".join(map(str, a.shape))
    return f"<code>[{entries}{', …' if a.size > _MOST_ENTRIES else ''}]</code> <small>({shape})</small>"


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    left = ' style="text-align:left;vertical-align:top"'
    body = "".join(f"<tr><th{left}>{html.escape(name)}</th><td{left}>{value}</td></tr>" for name, value in rows)
    return f"<table><caption{left}>onestep.{title}</caption><tbody>{body}</tbody></table>"


def _course(values: Sequence[float], width: int = 240, height: int = 48) -> str:
    """The objective against the iteration."""
    finite = [(i, value) for i, value in enumerate(values) if math.isfinite(value)]
    if len(finite) < 3:
        return ""
    lowest, highest = min(v for _, v in finite), max(v for _, v in finite)
    if not highest > lowest:
        return ""
    last = finite[-1][0]
    points = " ".join(
        f"{4 + (width - 8) * i / last:.1f},{4 + (height - 8) * (highest - value) / (highest - lowest):.1f}"
        for i, value in finite
    )
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="objective, from {values[0]:.6g} to {values[-1]:.6g}">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )
