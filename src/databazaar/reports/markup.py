"""Small pieces of HTML that the sections share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from databazaar.reports.wording import escape


def cell(shown: str, value: int) -> str:
    """A table cell that sorts by `value`."""
    return f'<td data-value="{value}">{escape(shown)}</td>'


def table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[str],
    *,
    text_at: Set[int] = frozenset({0}),
    foot: Sequence[str] = (),
    sortable: bool = True,
) -> str:
    """A table in a card that scrolls on its own; `rows` are ready `<tr>`, `text_at` the columns of words."""
    kinds = [' class="text"' if column in text_at else "" for column in range(len(heads))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>' if name else f"<td{kind}></td>"
        for kind, name in zip(kinds, heads, strict=True)
    )
    total = ""
    if foot:
        cells = "".join(f"<td{kind}>{escape(value)}</td>" for kind, value in zip(kinds[1:], foot[1:], strict=True))
        total = f'<tfoot><tr><th scope="row" class="text">{escape(foot[0])}</th>{cells}</tr></tfoot>\n'
    opening = '<table class="sortable">' if sortable else "<table>"
    body = "\n".join(rows)
    return (
        f'<div class="scroll card" role="region" tabindex="0" aria-label="{escape(caption)}">{opening}\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n{total}</table></div>"
    )


def pairs(items: Iterable[tuple[str, str]]) -> str:
    """A list of terms and values, both already markup."""
    lines = "\n".join(f"<dt>{key}</dt><dd>{value}</dd>" for key, value in items)
    return f'<dl class="pairs card">\n{lines}\n</dl>'


def figure_card(svg: str, title: str, caption: str) -> str:
    return (
        f'<figure class="card">{svg}\n<figcaption><strong>{escape(title)}.</strong> '
        f"{escape(caption)}</figcaption></figure>"
    )


def grid(cards: Sequence[str]) -> str:
    inside = "\n".join(cards)
    return f'<div class="figures">\n{inside}\n</div>'
