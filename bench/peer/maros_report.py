"""The tables of the suite maros, for a terminal and as Markdown."""
import math

from peer import report
from peer.report import amount, paragraph, seconds

SHIFT = 1e-3
COLUMNS = ["contender", "asked for", "says solved", "solved to 1e-6", "solved to 1e-9", "false", "largest error", "time",
           "over ours"]


def power(accuracy):
    return f"{accuracy:.0e}".replace("e-0", "e-")


def cell(row):
    """The time; in parentheses the error, where it is above what was asked for."""
    if row.reason or row.seconds is None:
        return "-"
    if row.is_solved(row.asked):
        return seconds(row.seconds)
    return f"{seconds(row.seconds)} ({amount(row.error) if row.error == row.error else 'no point'})"


def line(problem, rows):
    return f"{problem.name:<10} {problem.variables:>5}  " + "  ".join(f"{row.contender} {cell(row)}" for row in rows)


def shifted_mean(rows, limit):
    """Geometric; what was not solved to the accuracy that was asked for counts as the time limit."""
    times = [row.seconds if row.is_solved(row.asked) else limit for row in rows]
    return math.exp(sum(math.log(t + SHIFT) for t in times) / len(times)) - SHIFT


def summary(rows, contenders, accuracies, limit):
    """A line for each contender and each accuracy that was asked for."""
    lines = []
    for asked in accuracies:
        ours = shifted_mean([r for r in rows if r.contender == "onestep" and r.asked == asked], limit)
        for name in contenders:
            mine = [row for row in rows if row.contender == name and row.asked == asked]
            count = lambda test: f"{sum(map(bool, map(test, mine)))}/{len(mine)}"
            # An error well above what was asked for, of a solver that says it has solved the problem.
            false = sum(row.found and not row.error <= 1e3 * asked for row in mine)
            good = [row.error for row in mine if row.found and row.error == row.error]
            mean = shifted_mean(mine, limit)
            lines.append([name, power(asked), count(lambda r: r.found), count(lambda r: r.is_solved(1e-6)),
                          count(lambda r: r.is_solved(1e-9)), str(false), amount(max(good, default=None)), seconds(mean),
                          f"{mean / ours:.2f}"])
    return lines


def each(problems, rows, contenders, asked):
    of = {(row.problem, row.contender): row for row in rows if row.asked == asked}
    return [[p.name, str(p.variables), str(p.equalities), str(p.inequalities), *(cell(of[p.name, c]) for c in contenders)]
            for p in problems]


def remarks(problems, rows, accuracies):
    """Where a solver failed or stopped with an error, and whether what ours found is what was published."""
    said = []
    reasons = {}
    for row in rows:
        if row.reason:
            reasons.setdefault((row.contender, row.reason), []).append(f"{row.problem} to {row.asked:g}")
    for (contender, reason), where in reasons.items():
        said.append(f"{contender} on {', '.join(where)}: {reason}.")
    optimum = {p.name: p.optimum for p in problems}
    for row in rows:
        if row.contender == "onestep" and row.asked == accuracies[-1] and row.found and row.problem in optimum:
            published = optimum[row.problem]
            if abs(row.objective - published) > 1e-6 * max(1.0, abs(published)):
                said.append(f"On {row.problem} the objective of ours is {row.objective:.8g}, the published {published:.8g}.")
    return said


def aligned(lines, left=1):
    widths = [max(len(cells[i]) for cells in lines) for i in range(len(lines[0]))]
    pad = lambda i, c: f"{c:<{widths[i]}}" if i < left else f"{c:>{widths[i]}}"
    return "\n".join("  ".join(pad(i, c) for i, c in enumerate(cells)).rstrip() for cells in lines)


def text(problems, rows, about, accuracies, limit):
    table = aligned([COLUMNS, *summary(rows, about, accuracies, limit)])
    said = [f"  {name}: {what}" for name, what in about.items()] + [f"  {r}" for r in remarks(problems, rows, accuracies)]
    return f"{len(problems)} programs\n{table}\n" + "\n".join(said)


INTRODUCTION = """`bench/peers --suite maros --write docs/benchmarks.md` wrote this part. The programs are those of Maros and
Meszaros with at most 1,000 variables that are at hand, {count} of them, read from QPS files and given to
`qpsolvers.solve_problem`; a row with two bounds becomes two. Each solver is asked for the accuracy by options of its own
that mean the same: residuals and duality gap, absolute and relative. What it returns is judged here, by one definition for
all: primal residual, dual residual and duality gap, each over 1 and the largest of its terms, in the largest entry;
multipliers of the wrong sign are set to zero first. The error is the largest of the three. "Says solved" is what the solver
says, "solved" is what its error says, and "false" counts solutions that it says are solved although their error is more
than 1,000 times what was asked for; the largest error is of those that it says are solved. Times are CPU times of the whole
call of qpsolvers, from Python, with one thread, medians over turns that alternate; their mean is geometric, shifted by
{shift}; what is not solved to what was asked for counts as {limit:g} s."""


def markdown(problems, rows, about, accuracies, limit, versions):
    said = "## Quadratic programs of Maros and Meszaros, through qpsolvers\n\n"
    said += paragraph(INTRODUCTION.format(count=len(problems), shift=seconds(SHIFT), limit=limit))
    said += "\n" + report.measured(versions)
    said += "\n" + report.markdown_table(COLUMNS, summary(rows, about, accuracies, limit))
    said += "\n" + "".join(paragraph(f"{name}: {what}.", "- ") for name, what in about.items())
    said += "".join("\n" + paragraph(remark) for remark in remarks(problems, rows, accuracies))
    said += "\n" + paragraph(f"Asked for {power(accuracies[-1])}; n variables, m equalities, p inequalities; in parentheses "
                             "the error, where it is larger; a dash where there is no answer:")
    return said + "\n" + report.markdown_table(["program", "n", "m", "p", *about], each(problems, rows, about, accuracies[-1]))
