"""Codes for whatever ends, fails or is refused, and the one catalogue that turns them into sentences.

Ledgers, receipts, messages and databases hold codes with parameters, and programs compare codes. Sentences are made
for screens alone, so the wording of any of them may change, and every ledger stays what it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Value = str | int | float | None
Params = Mapping[str, Value]
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Code:
    """A code with its parameters; `str` is its sentence.

    >>> code = Code.of("update-type", found="list")
    >>> code.body(), str(code)
    ({'code': 'update-type', 'found': 'list'}, 'the update is a list, not a vector')
    >>> str(Code.of("own-words", text="the weather turned")), str(Code.of("storm", wind=9))
    ('the weather turned', 'storm (wind = 9)')
    """

    name: str
    params: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no code: write small letters and digits, with hyphens between words")

    @classmethod
    def of(cls, name: str, /, **params: Value) -> Code:
        """With these parameters. Text that UTF-8 cannot hold, such as a lone surrogate, becomes its escape."""
        return cls(name, tuple(sorted((key, _writable(value)) for key, value in params.items())))

    @classmethod
    def read(cls, body: Any) -> Code:
        """The code that such a `body` holds; a ValueError for anything else. It may be one that this version does not
        know."""
        if not isinstance(body, dict) or not isinstance(name := body.get("code"), str):
            raise ValueError("no code")
        params = {key: value for key, value in body.items() if key != "code"}
        if not all(type(value) in (str, int, float, type(None)) for value in params.values()):
            raise ValueError("a parameter is neither text nor a number")
        return cls(name, tuple(sorted(params.items())))

    def body(self) -> dict[str, Value]:
        """As JSON holds it."""
        return {"code": self.name, **dict(self.params)}

    def __str__(self) -> str:
        try:
            template, params = SENTENCES[self.name], dict(self.params)
            return template(params) if callable(template) else template.format(**params)
        except (KeyError, ValueError, TypeError, IndexError):  # of another version, or somebody else's
            given = ", ".join(f"{key} = {value}" for key, value in self.params)
            return f"{self.name} ({given})" if given else self.name


QUARANTINED = Code("quarantined")
"""Why a provider gave no update that has failed too often: it was not asked."""


def _writable(value: Value) -> Value:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def counted(number: Any, noun: str) -> str:
    """
    >>> counted(1, "round"), counted(1200, "round")
    ('1 round', '1,200 rounds')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


UNAVAILABLE = {
    "used_up": "used up",
    "above_access": "above the most per access",
    "above_round": "above the most per round",
    "above_left": "above what is left",
}
"""Why providers cannot be asked, each with how many of them: parameters of `nobody-can-be-asked`."""


def _nobody_can_be_asked(params: Params) -> str:
    """
    >>> _nobody_can_be_asked({"providers": 3, "used_up": 2, "above_access": 1})
    'nobody can be asked any more (2 of 3 providers used up, 1 above the most per access)'
    """
    parts = [f"{params[name]} {words}" for name, words in UNAVAILABLE.items() if name in params]
    first, space, rest = parts[0].partition(" ")
    parts[0] = f"{first} of {counted(params['providers'], 'provider')}{space}{rest}"
    return f"nobody can be asked any more ({', '.join(parts)})"


def _no_progress(params: Params) -> str:
    wanted = f"{params['least']:g} and more beyond chance" if params["least"] else "progress beyond chance"
    changed = f"the utility changed by {params['risen']:+.3g} ± {params['error']:.3g}"
    return f"over the last {params['rounds']} rounds {changed}, which is not {wanted}"


def _run_settled(params: Params) -> str:
    because = f"; it stopped because {params['because']}" if params["because"] else ""
    played = counted(params["rounds"], "round")
    return f"{played} played, {params['spent']} paid, {params['left']} back to the consumer{because}"


def _leak(params: Params) -> str:
    figure, limit = float(params["figure"] or 0.0), params["limit"]
    part = "scoring" if figure > 0 else "control"
    return (
        f"its answers gained on the {part} part of the hold-out and not as much on the other, by {abs(figure):.3g} "
        f"standard errors after {counted(params['answers'], 'answer')}, where chance alone stays below {limit:.3g}: it "
        "seems to have seen rows of that part"
    )


def _no_data(params: Params) -> str:
    figure, answers = max(float(params["figure"] or 0.0), 0.0), counted(params["answers"], "answer")
    return (
        f"what persists in its answers is, with two standard errors, {figure:.3g} of what persists in an ordinary "
        f"provider's after {answers}, and {params['limit']:.3g} is the least: there seems to be no data behind them"
    )


def _cleared(params: Params) -> str:
    return (
        f"what persists in its answers stood {params['figure']:.3g} standard errors above nothing after "
        f"{counted(params['answers'], 'answer')}, and {params['limit']:.3g} are asked for: its pay is not held back "
        "any more"
    )


def _in_doubt(params: Params) -> str:
    after, figure = f"after {counted(params['answers'], 'answer')}", params["figure"]
    if figure is None:
        return f"{after} nobody could tell whether there is data behind them"
    return (
        f"in the end what persists in its answers stood {figure:.3g} standard errors above nothing {after}, and "
        f"{params['limit']:.3g} are asked for: nobody could tell whether there is data behind them"
    )


def _no_data_of_rows(params: Params) -> str:
    figure, answers = max(float(params["figure"] or 0.0), 0.0), counted(params["answers"], "answer")
    return (
        f"what its rows have brought is, with four standard errors, {figure:.3g} of what others' brought at the time, "
        f"after {answers}, and {params['limit']:.3g} is the least: they seem to say nothing about the target"
    )


def _cleared_of_rows(params: Params) -> str:
    return (
        f"what its rows have brought stood {params['figure']:.3g} standard errors above nothing after "
        f"{counted(params['answers'], 'answer')}, and {params['limit']:.3g} are asked for: its pay is not held back "
        "any more"
    )


def _in_doubt_of_rows(params: Params) -> str:
    after, figure = f"after {counted(params['answers'], 'answer')}", params["figure"]
    if figure is None:
        return f"{after} nobody could tell whether its rows bring anything"
    return (
        f"in the end what its rows have brought stood {figure:.3g} standard errors above nothing {after}, and "
        f"{params['limit']:.3g} are asked for: nobody could tell whether they bring anything"
    )


def _by_provider(before: str) -> Callable[[Params], str]:
    return lambda params: f"{before}: {Code(str(params['why']))}"


SENTENCES: dict[str, str | Callable[[Params], str]] = {
    # Whatever rules of other people say.
    "own-words": "{text}",
    # Why a run ended.
    "budget-spent": "the budget is spent",
    "nobody-can-be-asked": _nobody_can_be_asked,
    "no-valid-reply": "nobody gave a valid reply in the last {rounds} rounds",
    "target-reached": "the utility reached {utility:.6g}, and {wanted:g} was wanted",
    "no-progress": _no_progress,
    "closed-by-consumer": "the consumer closed it; nobody is paid for the round that was under way",
    # How it ended.
    "settled": "settled",
    "nobody-answered": "nobody answered",
    "run-settled": _run_settled,
    "run-nobody-answered": (
        "nobody gave a valid reply in the last {silent} rounds: the run stopped after {rounds} rounds, and {left} go "
        "back to the consumer; the ledger says why each reply failed"
    ),
    # Why an access was void: what was wrong with an update, by an engine or by the market.
    "update-type": "the update is a {found}, not a vector",
    "update-shape": "the update has shape {found}, not {wanted}",
    "update-numbers": "the update holds {found}, not {wanted}",
    "not-finite": "the update holds NaN or infinity",
    "beyond-limit": "the update holds a number beyond ±{limit:g}",
    "oracle-raised": "{type}: {text}",
    "quarantined": "set aside after repeated failures",
    "no-utility": "the updated model has no finite utility",
    "gain-not-finite": "the gain in utility is beyond what a float can hold",
    "round-without-utility": "with this update the round's model has no finite utility",
    "not-new": "the update says nothing that the model's public changes or the provider's earlier answers did not say",
    "run-closed": "the consumer closed the run before this round was settled",
    "arbiter-gone": "the consumer's arbiter went away before it asked",
    # The same in a federation: no reply came, or none of ours.
    "not-connected": "not connected",
    "connection-lost": "connection lost",
    "no-answer": "no answer by the deadline",
    "reply-too-large": "reply too large",
    "provider-error": "provider error",
    "not-a-message": "not a message of this protocol",
    "bad-header": "the message's header is not valid",
    "bad-vector": "the message's vector is not valid",
    "other-shape": "the update is not shaped like the parameters",
    "other-round": "the reply belongs to another round or run",
    "other-provider": "the reply bears another provider's name",
    "other-question": "the reply answers another question",
    "not-signed": "the reply is not signed by the provider's key",
    # The provider said no, or that it failed; and why.
    "refused": _by_provider("refused"),
    "provider-failed": _by_provider("failed at the provider"),
    "task-not-allowed": "task not allowed",
    "task-does-not-fit": "task does not fit the data",
    "privacy-spent": "privacy budget spent",
    "consumer-privacy-spent": "privacy budget for this consumer spent",
    "too-many-questions": "too many questions",
    "consumer-not-allowed": "consumer not allowed",
    "no-accesses-left": "no more accesses for this job",
    "too-few-rows": "too few rows",
    "computation-failed": "computation failed",
    # Why a job at a hub is where it is.
    "ledger-unsound": (
        "the run cannot be settled by its ledger, so nobody is paid until the operator has looked at it: {why}"
    ),
    "job-held": "the hub cannot read or write what this job needs, and holds it until it can: {why}",
    "runs-kept-failing": "its runs kept failing",
    "attempt-failed": "attempt {attempt} failed, and is made again: {why}",
    "table-does-not-fit": "provider {provider!r}: its table does not fit this job: leave its offer out",
    "runner-failed": "the runner failed ({error}): the operator finds the cause in the job's log",
    "runner-killed": "its runner was killed by signal {signal}, as for want of memory",
    "runner-ended": "its runner ended with {exit}",
    "given-up": "given up after {attempts} attempts: {why}",
    "hub-stopped": "the hub was stopped",
    "runner-lost": "its runner was lost",
    "turn-over": "it has had its turn, others wait, and it goes on after them",
    "round-not-ended": "it did not finish its round within {seconds:g} seconds, and was ended in it",
    "arbiter-never-opened": "the consumer's arbiter never opened its run",
    "arbiter-silent": "the consumer's arbiter was not heard of for too long",
    "asked-to-stop": "the {party} asked to stop",
    "stopped": "stopped by the {party}",
    "stopped-by-operator": "the operator stopped it",
    "stopped-before-first-round": "the consumer stopped it before the first round",
    "withdrawn": "the consumer withdrew it before it was funded",
    "refunded-by-operator": "its ledger could not settle it: the operator has refunded all",
    "schema-not-accepted": (
        "the sites have not accepted this job's schema {schema}, or do not allow its work: ask their providers to look "
        "at `bazaar provider schema kit`, and to accept it with --accept {schema}; then make the job anew"
    ),
    "providers-agreed": "{agreed} of {asked} providers agreed",
    "nobody-agreed": "nobody agreed: {why}",
    # Verdicts of a defence.
    "leak": _leak,
    "no-data": _no_data,
    "cleared": _cleared,
    "alike": (
        "its answers are like those of {like}, by a cosine of {figure:.3g} where {limit:.3g} is the limit: both share "
        "one arm from then on, and so what one alone would earn"
    ),
    "in-doubt": _in_doubt,
    # The same where answers are rows.
    "leak-of-rows": (
        "its rows are near copies of hold-out rows {figure:.3g} standard errors more often than your own rows are by "
        "chance, and {limit:.3g} is the limit: it seems to have seen the hold-out"
    ),
    "no-data-of-rows": _no_data_of_rows,
    "cleared-of-rows": _cleared_of_rows,
    "alike-of-rows": (
        "beyond chance, {figure:.3g} of its rows are near copies of those of {like}, and {limit:.3g} is the limit: "
        "both share one arm from then on, and so what one alone would earn"
    ),
    "in-doubt-of-rows": _in_doubt_of_rows,
}
"""The sentence of every code: a template for its parameters, or a function of them."""
