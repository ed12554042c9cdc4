"""The reproduction as one HTML page: the verdicts first, then each figure beside the published numbers."""

from __future__ import annotations

from collections.abc import Sequence

from databazaar.reports.document import badge, document
from databazaar.reports.markup import figure_card
from databazaar.reports.svg import inline_svg
from databazaar.reports.wording import count, escape
from databazaar_experiments import figures, tables
from databazaar_experiments.published import DATASET_NAMES
from databazaar_experiments.results import Results
from databazaar_experiments.settings_tables import settings_section
from databazaar_experiments.verdicts import Verdict, judge

REPLACEMENT = (
    "OSMD draws the providers of a round with replacement here, as Algorithm 1 says. Most likely it drew without "
    "behind the published figures: the likeliest then get a little less and those after them a little more, and pay "
    "differs less from seed to seed. <code>--set repeats=never</code> draws so."
)
RINGS = "Filled marks are measured here; hollow rings are the published means."


def render(results: Results) -> str:
    """The whole page. The same results give the same bytes."""
    verdicts = judge(results)
    whats = set(results.plan.whats)
    body = [
        _verdicts(verdicts),
        tables.missing(results),
        _revenue(results) if "revenue" in whats else "",
        _accuracy(results) if whats & {"revenue", "accuracy"} else "",
        _runtime(results) if "runtime" in whats else "",
        _mixture(results) if "mixture" in whats else "",
        settings_section(results),
        tables.costs(results),
    ]
    content = "\n".join(part for part in body if part)
    return document("The paper, reproduced", "databazaar reproduction", _header(results, verdicts), content)


def _header(results: Results, verdicts: Sequence[Verdict]) -> str:
    holding, failing, open_ = (sum(v.holds is state for v in verdicts) for state in (True, False, None))
    badges = [badge(f"{count(holding, 'target holds', 'targets hold')}", True)] if holding else []
    badges += [badge(f"{count(failing, 'does not hold', 'do not hold')}", False)] if failing else []
    badges += [badge(f"{count(open_, 'is not decided', 'are not decided')}", False)] if open_ else []
    machines = sorted({m for m in results.cases.machine if m})
    where = f"Measured on {escape(', '.join(machines))}. " if machines else "Nothing is computed yet. "
    lead = (
        f"{where}Protocol <strong>{escape(results.plan.protocol)}</strong>: "
        f"{escape(PROTOCOLS_SAY[results.plan.protocol])}"
    )
    changes = results.plan.changes or {}
    if changes:
        told = ", ".join(f"{name} = {value}" for name, value in changes.items())
        lead += f" Changed on the command line: <strong>{escape(told)}</strong>."
    return f'<p>{" ".join(badges)}</p>\n<p class="lead">{lead}</p>'


PROTOCOLS_SAY = {
    "figures": "the settings behind the paper’s published figures, which its text does not all give.",
    "text": "what the paper’s text says. The published figures were made with other settings, so their numbers "
    "are shown beside these for orientation.",
    "quick": "a reduced version on small synthetic data. It shows that everything runs; the paper’s numbers "
    "do not apply to it.",
}


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return "<h2>What came out</h2>\n<p>No target of the paper belongs to what was asked for.</p>"
    text = (
        "Each target with its tolerance. Where something does not hold, it stands first, with the reason as far as "
        "it is known."
    )
    return f'<h2>What came out</h2>\n<p class="hint">{text}</p>\n' + tables.verdict_table(verdicts)


def _revenue(results: Results) -> str:
    parts = [
        "<h2>Figure 1 · Revenue of every provider</h2>",
        f'<p class="hint">A dot a provider: the mean over the seeds, with a bar of one standard deviation each way. '
        f"Bands mark the groups by their share β of wrong labels. {RINGS}</p>",
    ]
    if results.plan.protocol == "figures" and not any(name.endswith("repeats") for name in results.plan.changes or {}):
        parts.append(f'<p class="hint">{REPLACEMENT}</p>')
    for dataset in results.datasets:
        name = DATASET_NAMES[dataset]
        about = (f"Revenue on {name}", "Pay of every provider under the four methods.")
        drawn = inline_svg(figures.revenue(results, [dataset]), f"fig-revenue-{dataset}", *about)
        parts.append(f"<h3>{name}</h3>")
        parts += [
            tables.unpublished(results, [dataset]),
            figure_card(drawn, *about),
            tables.group_table(results, dataset),
        ]
    return "\n".join(parts)


def _accuracy(results: Results) -> str:
    about = (
        "Test accuracy along training",
        "The mean over the seeds, in a band of one standard deviation each way. " + RINGS,
    )
    drawn = inline_svg(figures.accuracy(results, results.datasets), "fig-accuracy", *about)
    return "\n".join(
        [
            "<h2>Figure 2 · Accuracy along training</h2>",
            tables.unpublished(results, results.datasets),
            figure_card(drawn, *about),
            tables.accuracy_table(results),
        ]
    )


def _runtime(results: Results) -> str:
    about = (
        "Runtime against the number of providers",
        "Both axes are logarithmic. Solid lines are measured here, dashed ones with rings are published; the "
        "authors’ machine is another one, so compare the slopes and the order of the methods.",
    )
    drawn = inline_svg(figures.runtime(results, results.datasets), "fig-runtime", *about)
    told = "" if len(results.runtime) else "<p><strong>Not measured:</strong> only the published lines are drawn.</p>"
    return "\n".join(["<h2>Figure 3 · Runtime</h2>", told, figure_card(drawn, *about), tables.runtime_table(results)])


def _mixture(results: Results) -> str:
    about = (
        "Mixture linear regression",
        "Above, the pay of every provider; inside a group both ours and the published ones are sorted by pay, "
        "because the authors’ order there is not known. Below, the distance to the consumer’s own parameter. " + RINGS,
    )
    drawn = inline_svg(figures.mixture(results), "fig-mixture", *about)
    return "\n".join(
        [
            "<h2>Figure 4 · Mixture regression</h2>",
            figure_card(drawn, *about),
            tables.group_table(results, "mixture"),
            tables.error_table(results),
        ]
    )
