"""The tables of the suite peers, for a terminal and as Markdown, and what they say where a peer is ahead of ours."""
import dataclasses
import datetime
import os
import pathlib
import re
import textwrap

HEADINGS = {
    "logistic": "Weighted logistic regression by Newton's method, (N,n)",
    "qp": "Dense quadratic programs, (n,m,p)",
}
INTRODUCTIONS = {
    "logistic": "f(x, w) = sum(w softplus(-y A x)) + 0.1 sum(x[1:]²) with N samples and n coefficients, from x = 0; "
                "gradient of ‖x‖²/2 by the N weights w.",
    "qp": "min ½xᵀQx + qᵀx with Ax = b and Gx ≤ h, n variables, m equalities, p inequalities; gradient of ‖x‖²/2 by all of "
          "Q, q, A, b, G and h.",
}
COLUMNS = ["contender", "method", "solve", "solve + gradient", "over ours", "error", "first call", "lines"]


@dataclasses.dataclass
class Table:
    problem: object
    rows: list
    notes: list  # about the data

    def sizes(self):
        return list(dict.fromkeys(row.size for row in self.rows))

    def of(self, size):
        return [row for row in self.rows if row.size == size]


def seconds(value):
    if value is None:
        return "-"
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (float("inf"), 1.0, "s")):
        if value < limit:
            return f"{value * factor:.3g} {unit}" if value * factor < 1000 else f"{value * factor:.0f} {unit}"
    return "-"


def amount(value):
    return "-" if value is None else f"{value:.1e}"


def size_text(size):
    return "(" + ",".join(map(str, size)) + ")"


def ours(rows, method="one-step"):
    return next((row for row in rows if (row.contender, row.method) == ("onestep", method)), None)


def ratio(row, rows):
    """To one step of ours: of the solves with gradient, or of the solves where a peer has no gradients."""
    base = ours(rows)
    of, to = (row.gradient, base and base.gradient) if row.gradient else (row.solve, base and base.solve)
    return f"{of / to:.2f}" if of and to else "-"


def cells(row, rows):
    return [row.contender, row.method, seconds(row.solve), seconds(row.gradient), ratio(row, rows), amount(row.error),
            seconds(row.compile), str(row.lines)]


def text_table(problem, size, rows):
    lines = [COLUMNS] + [cells(row, rows) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    text = f"{problem.name} {size_text(size)}, {problem.parameters(size)} parameters\n"
    for line, row in zip(lines, [None, *rows]):
        left = "  ".join(f"{cell:<{w}}" if i < 2 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(line, widths)))
        text += f"{left}  {row.reason if row else ''}".rstrip() + "\n"
    return text


# ---- where a peer is ahead ----


def ahead(rows):
    """A sentence for each way in which some peers are ahead of one step of ours, which names all of them."""
    base, exact = ours(rows), ours(rows, "implicit")
    if not base or base.gradient is None:
        return []
    theirs = [row for row in rows if row.contender != "onestep"]
    place, sentences = size_text(base.size), []
    faster = [f"{row.name()} ({seconds(row.gradient)})" for row in theirs if row.gradient and row.gradient < base.gradient]
    if faster:
        sentences.append(f"At {place} these take less for the solve with its gradient than one step of ours "
                         f"({seconds(base.gradient)}): {', '.join(faster)}.")
    faster = [f"{row.name()} ({seconds(row.solve)})" for row in theirs if row.solve and row.solve < base.solve]
    if faster:
        sentences.append(f"At {place} these solve faster than ours ({seconds(base.solve)}): {', '.join(faster)}.")
    closer = [f"{row.name()} ({amount(row.error)})" for row in theirs
              if row.error is not None and 10 * row.error < base.error]
    if closer:
        also = f"; ours implicit has {amount(exact.error)} in {seconds(exact.gradient)}" if exact and exact.gradient else ""
        sentences.append(f"At {place} these are more than ten times as accurate as one step of ours "
                         f"({amount(base.error)}): {', '.join(closer)}{also}.")
    return sentences


# ---- what is said once ----


def versions(tables):
    rows = [row for table in tables for row in table.rows]
    return ", ".join(sorted({f"{row.contender} {row.version}" for row in rows if row.version}))


def descriptions(table):
    """What each contender is and when it stops."""
    shown = {(row.contender, row.method) for row in table.rows}
    merged = {}
    for (contender, method), (_, text) in table.problem.contenders().items():
        if (contender, method) in shown:
            merged.setdefault((contender, text), []).append(method)
    return [f"{contender} {', '.join(methods)}: {text}." for (contender, text), methods in merged.items()]


def machine():
    """Its class, and nothing by which it could be told from others like it."""
    model, memory = "unknown processor", 0.0
    if (file := pathlib.Path("/proc/cpuinfo")).exists() and (found := re.search(r"model name\s*: (.*)", file.read_text())):
        model = found[1]
    if (file := pathlib.Path("/proc/meminfo")).exists() and (found := re.search(r"MemTotal:\s*(\d+) kB", file.read_text())):
        memory = int(found[1]) / 2**20
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GB of memory"


def endnotes(tables, notes):
    text = "solve + gradient over ours: over that of onestep one-step; of a peer without gradients, solve over solve\n"
    for table in tables:
        text += f"\n{table.problem.name}\n"
        for line in descriptions(table) + table.notes + [s for size in table.sizes() for s in ahead(table.of(size))]:
            text += f"  {line}\n"
    return text + "\n" + "".join(f"{note}\n" for note in notes) + f"{versions(tables)}\n{machine()}"


MARKDOWN = """`./run bench peers --write docs/benchmarks.md` wrote this file, and writes it again. All contenders read the same
data, which ours writes. Each is written as its own documentation recommends, with the tolerances that are
said below, warmed up, and called from its own language: ours from C++, the others from Python. They take
turns, and a time is the median over the turns. "Solve + gradient" is one solve with its gradient, "over ours" its ratio to
one step of ours (of a peer without gradients: solve over solve). The error is the largest difference of two entries from a
reference in long double, relative to the largest entry, of the part of the gradient where that is largest. "First call" is
what building, tracing and compiling take before the first gradient. Lines are those a user writes, without imports, comments
and blank lines. The peers' BLAS and LAPACK run with one thread, which is faster beside XLA's own."""


def paragraph(text, first=""):
    """In lines of the width that the repository has, with the unit as people write it."""
    text = re.sub(r"(\d) us\b", "\\1 µs", " ".join(text.split()))
    return textwrap.fill(text, 125, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False,
                         break_on_hyphens=False) + "\n"


def write(file, suite, text):
    """Makes this the part of a suite in the file: suites that write to one file each keep what the others wrote."""
    path = pathlib.Path(file)
    before = path.read_text() if path.exists() else ""
    first, *others = re.split(r"^<!-- bench/peers --suite (\w+) -->\n", before, flags=re.MULTILINE)
    parts = {"peers": first, **dict(zip(others[::2], others[1::2])), suite: text}
    named = [f"<!-- bench/peers --suite {name} -->\n{part}" for name, part in parts.items() if name != "peers"]
    path.write_text("\n".join(part.strip() + "\n" for part in [parts["peers"], *named] if part.strip()))


def markdown_table(columns, lines, left=1):
    """Its first columns to the left, the others, which are numbers, to the right."""
    rows = [columns, ["---"] * left + ["--:"] * (len(columns) - left), *lines]
    rules = lambda cells: "".join(f"{cell}|" for cell in cells)
    text = "".join("| " + " | ".join(cells) + " |\n" if i != 1 else f"|{rules(cells)}\n" for i, cells in enumerate(rows))
    return text.replace(" us ", " µs ")


def measured(versions):
    """When and where, for the head of a part of the page."""
    today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    return paragraph(f"{today}; {machine()}; {versions}.")


def markdown(tables, notes):
    text = "# Beside its peers\n\n" + paragraph(MARKDOWN) + "\n" + measured(versions(tables))
    for said in notes:
        text += "\n" + paragraph(said)
    for table in tables:
        text += f"\n## {HEADINGS[table.problem.name]}\n\n{paragraph(INTRODUCTIONS[table.problem.name])}\n"
        lines = []
        for size in table.sizes():
            rows = table.of(size)
            for row in rows:
                line = cells(row, rows)
                if row.reason:
                    line[1] += f" ({row.reason})"
                lines.append([size_text(size), *line])
        text += markdown_table(["size", *COLUMNS], lines, left=3)
        text += "\n" + "".join(paragraph(line, "- ") for line in descriptions(table) + table.notes)
        sentences = [sentence for size in table.sizes() for sentence in ahead(table.of(size))]
        for sentence in sentences or ["No peer is ahead of ours."]:
            text += "\n" + paragraph(sentence)
    return text
