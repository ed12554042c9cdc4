"""The profile of all tables of a market: the consumer's own, and each provider's against them, with what is odd about
each in plain sentences that name the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from databazaar.data.columns import distinct, holds_written_dates, is_identifier, listed, plain
from databazaar.data.encoders import CategoricalColumn, DateColumn, HashedColumn, ImageColumn, NumericColumn, TextColumn
from databazaar.data.profile import Baseline, Measured, spelling
from databazaar.data.profile_record import UNUSED, ColumnUse, TableProfile, Understood
from databazaar.data.schema import REASONS, Schema
from databazaar.data.schema_message import TaskKind
from databazaar.data.words import words_of

MUCH_MISSING = 0.3
MUCH_UNSEEN = 0.05
MUCH_OUTSIDE = 0.1
FAR = 2.0
OTHER_BALANCE = 0.25
MANY_REPEATED = 0.05
_KINDS: dict[type, Understood] = {
    NumericColumn: "number",
    CategoricalColumn: "category",
    HashedColumn: "hashed",
    DateColumn: "date",
    TextColumn: "text",
    ImageColumn: "image",
}


class Profiler:
    """Profiles a market's tables one after the other against the hold-out, so that only that one stays in memory.
    `columns` say how each column of the hold-out is read. Whose a table is, its profile does not say yet."""

    def __init__(self, holdout: pd.DataFrame, target: str, task: TaskKind, columns: Sequence[ColumnUse]) -> None:
        self.columns = tuple(columns)
        used = {column.name: column.understood for column in columns if column.understood not in UNUSED}
        self._baseline = Baseline(holdout, target, task, used)
        self._own = self._baseline.measure(holdout, own=True)
        warnings = (
            *_column_signs(holdout, used),
            *_spellings(self._baseline),
            *_empty(self._own, None),
            *_repeated(self._own),
            *_few_of_a_class(self._own),
        )
        self.holdout = self._own.profile.model_copy(update={"warnings": warnings})

    def table(self, frame: pd.DataFrame) -> TableProfile:
        """A table against the hold-out."""
        measured, own = self._baseline.measure(frame), self._own
        warnings = (
            *_copied(measured, own),
            *_columns(measured),
            *_empty(measured, own),
            *_unseen(measured, self._baseline),
            *_shifted(measured),
            *_balance(measured, own),
            *_repeated(measured),
        )
        return measured.profile.model_copy(update={"warnings": warnings})


def column_uses(schema: Schema, frame: pd.DataFrame, features: Sequence[str] | None) -> list[ColumnUse]:
    """How each column of the hold-out is read by a schema, which may know only those that can be used."""
    names = [str(name) for name in frame.columns if name != schema.target]
    wanted = set(names if features is None else features)
    unused = {name: "not among `features`" for name in names if name not in wanted}
    unused |= {column.name: REASONS[column.why] for column in schema.left_out}
    kinds: dict[str, Understood] = {name: "left out" if name in unused else "not usable" for name in names}
    kinds |= {encoder.name: _KINDS[type(encoder)] for encoder in schema.encoders}
    about = unused | {image.name: "×".join(map(str, image.size)) for image in schema.images}
    about |= {text.name: _read_as_words(frame[text.name]) for text in schema.texts}
    first = {
        name: ["" if isinstance(value, bytes) else str(value)[:40] for value in plain(frame[name].dropna())[:1]]
        for name in names
    }
    return [
        ColumnUse(name=name, understood=kinds[name], why=about.get(name, ""), example="".join(first[name]))
        for name in names
    ]


def _read_as_words(column: pd.Series) -> str:
    """
    >>> _read_as_words(pd.Series(["good value", "it broke on day one", None]))
    'by its words and pairs of words, 5 words in a usual row'
    """
    counts = sorted(len(words_of(str(text))) for text in column.dropna())
    return f"by its words and pairs of words, {counts[len(counts) // 2]} words in a usual row"


def _column_signs(frame: pd.DataFrame, understood: Mapping[str, Understood]) -> Iterator[str]:
    for name, kind in understood.items():
        column = frame[name]
        if len(column) > 1 and distinct(column) == 1 and not column.hasnans:
            yield f"column {name!r} has the same value in every row, so it tells nothing: leave it out of `features`"
        elif kind not in ("text", "image") and is_identifier(column):
            yield (
                f"column {name!r} has another value in every row and looks like an identifier: leave it out by listing "
                "the other columns as `features`"
            )
        elif kind == "category" and holds_written_dates(column):
            yield f"column {name!r} holds dates and is read as categories: take it out of `categorical`"
        elif kind in ("category", "hashed") and 2 * distinct(column) > len(column):
            yield (
                f"column {name!r} has {distinct(column):,} different texts in {len(column):,} rows, too many to tell "
                "anything by: leave it out of `features`, or group its values"
            )


def _spellings(baseline: Baseline) -> Iterator[str]:
    for name, known in baseline.known.items():
        first: dict[str, str] = {}
        for text in sorted(known):
            twin = first.setdefault(spelling(text), text)
            if spelling(text) and twin != text:
                yield f"column {name!r} has both {twin!r} and {text!r}: if they are the same, write them alike"
                break


def _copied(measured: Measured, own: Measured) -> Iterator[str]:
    """Where the hold-out repeats itself, another table may hold the same rows by chance."""
    copied, rows = measured.profile.copied, own.profile.rows
    if copied / rows > own.profile.repeated / rows:
        yield (
            f"{copied:,} of your {rows:,} hold-out rows are in this table too, value for value: who knows the "
            "answers is paid for them, so ask where they come from, and take them out"
        )


def _columns(measured: Measured) -> Iterator[str]:
    if measured.extra:
        yield f"it has columns that your rows do not have, {listed(measured.extra, 4)}: they are not used"


def _empty(measured: Measured, own: Measured | None) -> Iterator[str]:
    for name, share in measured.empty.items():
        usual = own.empty.get(name, 0.0) if own else 0.0
        if share == 1:
            yield f"column {name!r} is empty: fill it in, or leave it out of `features`"
        elif share > usual + MUCH_MISSING:
            yield f"column {name!r} is empty in {share:.0%} of the rows: ask for values, or leave it out of `features`"


def _unseen(measured: Measured, baseline: Baseline) -> Iterator[str]:
    for name, column in measured.categories.items():
        if not column.unseen:
            continue
        known = {spelling(own): own for own in sorted(baseline.known[name])}
        twins = {strange: _twin(strange, known) for strange in column.strange}
        alike = [f"{strange!r} (yours: {twin!r})" for strange, twin in twins.items() if twin is not None]
        if alike:
            more = f" and {len(alike) - 3} more" if len(alike) > 3 else ""
            yield (
                f"column {name!r} spells categories differently, such as {', '.join(alike[:3])}{more}: write them as "
                "your rows do, otherwise they count as unknown"
            )
        others = [strange for strange, twin in twins.items() if twin is None]
        if others and column.unseen / column.known > MUCH_UNSEEN:
            yield (
                f"column {name!r} has categories that your rows do not have in {column.unseen / column.known:.0%} "
                f"of its rows, such as {listed(others, 3)}: they count as unknown; add such rows to your own"
            )


def _twin(strange: str, known: Mapping[str, str]) -> str | None:
    """The category of the consumer that is probably meant."""
    plain_name = spelling(strange)
    if plain_name in known:
        return known[plain_name]
    if len(plain_name) < 5 or not plain_name.isalpha():
        return None
    close = difflib.get_close_matches(plain_name, known, n=1, cutoff=0.88)
    return known[close[0]] if close else None


def _shifted(measured: Measured) -> Iterator[str]:
    for name, column in measured.numbers.items():
        outside = column.outside / column.known if column.known else 0.0
        if column.shift > FAR:
            yield (
                f"column {name!r} lies {column.shift:.1f} standard deviations from yours on average: check that "
                "it has the same unit"
            )
        elif outside > MUCH_OUTSIDE:
            yield (
                f"column {name!r} is outside the range of your rows in {outside:.0%} of its rows: check its unit, "
                "or add such rows to your own"
            )


def _balance(measured: Measured, own: Measured) -> Iterator[str]:
    here, usual = measured.profile.balance, own.profile.balance
    if not here or not usual:
        return
    if measured.strange_labels:
        twins = {spelling(name): name for name in usual}
        alike = [
            f"{name!r} (yours: {twins[spelling(name)]!r})"
            for name in measured.strange_labels
            if spelling(name) in twins
        ]
        yield (
            f"it has labels that your rows do not have, {listed(measured.strange_labels, 4)}: "
            + (
                f"write {', '.join(alike[:3])} as your rows do"
                if alike
                else "correct them, or add such rows to your own"
            )
        )
    present = [name for name, share in here.items() if share]
    if len(present) == 1 < len(usual):
        yield f"all its rows are of the class {present[0]!r}: ask for rows of the other classes"
        return
    far = max(usual, key=lambda name: abs(here.get(name, 0.0) - usual[name]))
    if abs(here.get(far, 0.0) - usual[far]) > OTHER_BALANCE:
        yield (
            f"the class {far!r} has {here.get(far, 0.0):.0%} of its rows and {usual[far]:.0%} of yours: "
            "check that it means the same there"
        )


def _few_of_a_class(measured: Measured) -> Iterator[str]:
    rows = measured.profile.rows
    rare = [name for name, share in measured.profile.balance.items() if share * rows < 10]
    if rare:
        yield f"fewer than ten of your rows are of the class {listed(rare, 4)}: gains on so few are noise; add rows"


def _repeated(measured: Measured) -> Iterator[str]:
    profile = measured.profile
    if profile.repeated > MANY_REPEATED * profile.rows and profile.repeated > 1:
        yield (
            f"{profile.repeated:,} of its {profile.rows:,} rows repeat another one: if they should not, ask for the "
            "table without them"
        )
