"""The arbiter: brings consumer, providers, rules and engine together, and plays the market to its end."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from databazaar.aggregators import AGGREGATORS, Aggregator, Mean
from databazaar.defence import Defence, OwnerGroups, defence_of
from databazaar.display import Displayed, listed
from databazaar.engines import Beginning, Ended, Engine, Remote, make_engine
from databazaar.engines.protocol import NO_UTILITY, TOO_FAR, memory_may_run_out
from databazaar.engines.quarantine import Quarantine
from databazaar.errors import BazaarError
from databazaar.learners import LEARNERS, Averaging, Learner, Market, default_learner, learner_for
from databazaar.learning.fit import refuse_table
from databazaar.learning.utilities import Evaluator
from databazaar.ledger import Accounts, Ledger, RuleBook, Terms, audit_entries
from databazaar.ledger.terms import LIMITS
from databazaar.market.callback import Callback, Callbacks
from databazaar.market.inspection.holdout_parts import committed
from databazaar.market.inspection.inspection import Inspection, Watch
from databazaar.market.inspection.rows import RowInspection
from databazaar.market.loop import play
from databazaar.market.quoting import Quote, quote
from databazaar.market.run import MarketRun, OnRound, first_state
from databazaar.market.state import State
from databazaar.parties import Consumer, Provider
from databazaar.payments import PAYMENTS, Payment, PricePerAccess
from databazaar.roster import Roster
from databazaar.row_values import RowSums, Sums
from databazaar.runs.report import Report, report_from
from databazaar.samplers import OSMD, SAMPLERS, Adaptive, Sampler
from databazaar.samplers.osmd import theory_for
from databazaar.stops import STOPS, Budget, Patience, Stop
from databazaar.training import Model, Training
from databazaar.training.parameters import Parameters, vector_of
from databazaar.vectors import layout_digest

if TYPE_CHECKING:
    from databazaar.runs.folder import RunFolder


HERE = ("vectorized", "loop", "rows")
"""Engines that have the providers' rows in this process."""


class Arbiter(Displayed):
    """Runs one market: `Arbiter(consumer, providers).run()` gives a Report, and `model` is then trained.

    Without rules of your own, `Adaptive` decides whom to ask, every valid reply is paid its price, and the run ends
    when the budget is spent. A network is trained in-run on the rows that are bought; where providers have oracles, or
    there is an `aggregator`, the combined updates of the providers move it. With `OSMD` it is the paper's market.
    `patience` is how many rounds on end may pass in which nobody answers; `stops` are further reasons to end. `engine`
    is "vectorized", "loop", or an Engine of your own. `defence` is what is done against those who play for the money:
    "none", "standard", "strict", or a Defence of your own. Where they are given, the names of the `market` and of the
    `buyer`, and the SHA-256 of each file of `data`, stand in the ledger's first entry.

    `values_rows` keeps what each row of a provider has brought, for learners that train on rows: `row_values` has it
    after the run, and each provider's own statement. It changes nothing else.
    """

    def __init__(
        self,
        consumer: Consumer,
        providers: Sequence[Provider],
        sampler: Sampler | None = None,
        *,
        learner: Learner | None = None,
        aggregator: Aggregator | None = None,
        payment: Payment | None = None,
        stops: Sequence[Stop] = (),
        engine: str | Engine = "vectorized",
        device: str = "auto",
        seed: int = 0,
        patience: int = 10,
        defence: str | Defence | None = None,
        market: str = "",
        buyer: str = "",
        data: Mapping[str, str] | None = None,
        values_rows: bool = False,
    ) -> None:
        self.consumer = consumer
        self.providers = list(providers)
        roster = Roster(tuple(p.offer for p in providers))
        sampler, payment = sampler or Adaptive(), payment or PricePerAccess()
        if learner is None and aggregator is None and isinstance(engine, str) and engine in HERE:
            learner = default_learner(consumer, self.providers, sampler)
        self.learner, self.aggregator = learner or learner_for(consumer.model), aggregator or Mean()
        if not isinstance(stops, list | tuple):
            raise BazaarError(f"stops = {stops!r} must be a list: write stops=[…]")
        self._begins = self.learner.begin(consumer)
        seed, defence = _whole(seed, "seed", 0), defence_of(defence)
        if self.learner.rows is not None:
            defence = defence.of_rows()
        every_stop = (Patience(_whole(patience, "patience", 1)), *stops, Budget())
        terms = Terms(
            seed=seed,
            budget=int(consumer.budget),
            per_round=int(consumer.per_round),
            currency=consumer.currency,
            roster=roster,
            rules=settings_of_rules(
                sampler, self.learner, self.aggregator, payment, every_stop, defence, consumer.utility_settings
            ),
            bounded_utility=consumer.bounded,
            initial_model=self._begins.stored.hash,
            market=market,
            consumer=buyer,
            data=dict(data or {}),
            layout=_layout(consumer),
            frozen=consumer.task.frozen_digest,
            holdout=committed(consumer.judged_rows, seed) if defence.parts_holdout else {},
            most_per_access=consumer.limits.get("most_per_access"),
            most_per_round=consumer.limits.get("most_per_round"),
        )
        self.rules = RuleBook(terms, sampler, payment, every_stop)
        self._refuse_where_nobody_is_asked()
        self._refuse_misfit(engine)
        self.values_rows = values_rows
        if values_rows and self.learner.rows is None:
            raise BazaarError(
                f"values_rows needs a learner that trains on rows, and {self.learner.kind!r} buys updates: use model "
                '"trees" or learner "in-run", or leave it out'
            )
        if isinstance(engine, str):
            engine = make_engine(engine, consumer.task.copied(), self.providers, device, self.learner.rows)
        elif not isinstance(engine, Engine):
            raise BazaarError(
                f"engine {type(engine).__name__} lacks query or close: inherit from databazaar.engines.Engine, and "
                "write query"
            )
        self.engine = engine
        self._reached: tuple[Model, Model] | None = None  # the best model and the last, once there are such
        self._rows: Sums | None = None  # what rows have brought in the last run, where they are valued

    def _refuse_misfit(self, engine: str | Engine) -> None:
        """Refuses what a learner that trains on rows cannot do yet."""
        if self.learner.rows is None:
            return
        kind, name = getattr(engine, "kind", engine), self.learner.kind
        if kind not in HERE:
            raise BazaarError(
                f"learner {name!r} needs the providers' rows here, and engine {kind!r} has none: use engine "
                '"vectorized", or learner "averaging"'
            )
        if (form := self.consumer.form) is not None:
            for provider in self.providers:
                if provider.data is not None:
                    refuse_table(self.consumer.task, form, provider.dataset, f"provider {provider.id}")

    def _refuse_where_nobody_is_asked(self) -> None:
        terms, cheapest = self.rules.terms, int(self.rules.quotes_at(0).min())
        if terms.budget < terms.per_round * cheapest:
            raise BazaarError(
                f"budget = {terms.budget} cannot pay for one round of per_round = {terms.per_round} accesses "
                f"(at least {terms.per_round * cheapest}): raise the budget or lower per_round"
            )
        for name in LIMITS:
            most = getattr(terms, name)
            if most is not None and most < cheapest:
                raise BazaarError(
                    f"{name} = {most} pays for nobody, because an access costs {cheapest} or more in the first round: "
                    f"raise {name} to at least that, or leave it out"
                )
        self.rules.start()  # a sampler refuses a market here that it cannot draw from

    def terms(self) -> Terms:
        """What is agreed before the first round, and stands at the head of the ledger."""
        return self.rules.terms

    def quote(self) -> Quote:
        """What the run will cost, before a coin is spent: rounds, exploration, who can be asked, what stays behind."""
        return quote(self.rules)

    def training(self, evaluator: Evaluator | None = None) -> Training:
        """The learner at work in this market."""
        terms, price = self.rules.terms, float(self.rules.quotes_at(0).mean())
        rounds = max(1, round(terms.budget / (price * terms.per_round)))
        market = Market(self.consumer, self.aggregator, self.engine.device, terms.seed, rounds, evaluator)
        return self.learner.training(market)

    def begin(
        self, accounts: Accounts, on_round: OnRound | None = None, evaluator: Evaluator | None = None
    ) -> MarketRun:
        """The run that these accounts are kept for, where its ledger's last committed round left it. Runs whose
        consumers judge alike may share an evaluator."""
        training, device, seed = self.training(evaluator), self.engine.device, self.rules.terms.seed
        snapshot = accounts.store.snapshot() if isinstance(accounts, Ledger) else None
        if snapshot is None:
            with self.consumer.limited_threads():
                begins = training.restored(self._begins.stored.array)
                state = first_state(self.rules, training, begins, self.values_rows)
        else:
            state = State.restored(snapshot, training, device)
        quarantine = None if isinstance(self.engine, Remote) else self._quarantine(accounts)
        defence = self.rules.defence
        watch: Watch | None = None
        if defence.watches and defence.rows:
            watch = RowInspection.of(defence, self.consumer)
        elif defence.watches:
            judge = evaluator or self.consumer.evaluator(device)
            watch = Inspection.of(defence, vector_of(state.model), judge, seed)
        return MarketRun(
            self.rules,
            training,
            accounts,
            state,
            on_round=on_round,
            quarantine=quarantine,
            watch=watch,
            step=self.consumer.step,
        )

    def _quarantine(self, accounts: Accounts) -> Quarantine:
        """Who is set aside by what the ledger tells of earlier asks."""
        quarantine, ids = Quarantine(), self.rules.terms.roster.ids
        for round, provider, reason in _ended(accounts) if isinstance(accounts, Ledger) else ():
            quarantine.note(ids[provider], round, reason, honest=reason in (NO_UTILITY, TOO_FAR))
        return quarantine

    def run(
        self,
        folder: str | Path | RunFolder | None = None,
        *,
        callbacks: Sequence[Callback | OnRound] = (),
        tell: OnRound | None = None,
    ) -> Report:
        """Plays the market to its end. With a folder, every round is committed there and a crash loses nothing;
        a folder that holds an unfinished run of the same terms is continued.

        `callbacks` listen: each is a Callback, or a function that gets the Progress after every round. `tell=function`
        is short for `callbacks=[function]`.

        A small model (parameters × per_round below 100,000) is computed on one thread, a large one on as many as torch
        has; the environment variable DATABAZAAR_THREADS sets another number.
        """
        told = Callbacks(callbacks if tell is None else [*callbacks, tell])
        with self.consumer.limited_threads(), memory_may_run_out():
            if folder is None:
                ledger = Ledger(self.rules)
                with told.during(self.terms()):
                    self._play(ledger, told)
                    report = report_from(audit_entries(ledger.store.entries()))
            else:
                report = self._run_in(folder, told)
        told.on_end(report)
        return report

    def _run_in(self, folder: str | Path | RunFolder, told: Callbacks) -> Report:
        from databazaar.runs.folder import RunFolder
        from databazaar.runs.model_folder import Outline

        outline = Outline.of(self.consumer.task, self.consumer.form)
        kept = folder if isinstance(folder, RunFolder) else RunFolder.open_or_create(Path(folder))
        try:
            ledger = Ledger(replace(self.rules, terms=replace(self.terms(), **kept.stated)), kept.store())
            kept.note_begun(ledger.opening)
            with told.during(self.terms()):
                if isinstance(self.engine, Remote):  # its providers are other parties: it is witness to the ledger
                    ended, over = tuple(_ended(ledger)), ledger.book.closed
                    self.engine.begin(Beginning(kept.id, ended, kept.note_privacy, kept.evidence, over))
                    self.engine.witness(list(ledger.store.entries()))
                    ledger.on_written = self.engine.witness
                if ledger.book.closed:  # killed after the last round, before the folder was finished
                    self._reached, self._rows = kept.saved_models(self.training()), kept.row_sums()
                    if self._reached is None:
                        self._end(self.begin(ledger).state)
                else:
                    kept.note_outline(outline)
                    self._play(ledger, told)
                if self._rows is not None:
                    kept.note_rows(self._rows)
                best, last = self._models
                return kept.finish(best.stored.array, outline, last.stored.array)
        finally:
            kept.dispose()  # a run that is stopped leaves no connection behind that would block the next

    def _play(self, ledger: Ledger, told: Callbacks) -> None:
        run = self.begin(ledger, told.hears_rounds)
        play(run, self.engine)
        self._end(run.state)

    def _end(self, state: State) -> None:
        self._reached, self._rows = state.models, state.rows

    def _facts(self) -> dict[str, str]:
        rules, terms = self.rules, self.rules.terms
        return {
            "model": self.consumer._facts()["model"],
            "budget": f"{terms.currency.format(terms.budget)}, {terms.per_round:,} accesses a round",
            "providers": f"{len(self.providers):,} ({listed(terms.roster.ids)})",
            "sampler": str(rules.sampler.sampler if isinstance(rules.sampler, OwnerGroups) else rules.sampler),
            **self._learner_facts(),
            "payment": str(rules.payment),
            "stops": ", ".join(map(str, rules.stops)),
            **({} if rules.defence.off else {"defence": str(rules.defence)}),
            "engine": f"{type(self.engine).__name__} on {self.engine.device}",
            "seed": str(terms.seed),
        }

    def _learner_facts(self) -> dict[str, str]:
        averages = isinstance(self.learner, Averaging)
        return {"aggregator": str(self.aggregator)} if averages else {"learner": str(self.learner)}

    def close(self) -> None:
        """Lets go of what the engine holds; the report, the parameters and the model stay."""
        self.engine.close()

    @property
    def _models(self) -> tuple[Model, Model]:
        return self._reached or (self._begins, self._begins)

    @property
    def reached(self) -> Model:
        """The best model that the last run reached, by the utility, as its learner has it."""
        return self._models[0]

    @property
    def row_values(self) -> dict[str, RowSums]:
        """By provider, what each of its rows has brought in the last run, with `values_rows`. Row 0 is the first."""
        ids = self.rules.terms.roster.ids
        return {ids[i]: RowSums(sums) for i, sums in sorted((self._rows or {}).items())}

    @property
    def parameters(self) -> Tensor:
        """The parameters of the best model that the last run reached, by the utility: one vector, on the CPU."""
        return vector_of(self._models[0]).detach().cpu()

    @property
    def last_parameters(self) -> Tensor:
        """Those that the last round ended with, as in the paper."""
        return vector_of(self._models[1]).detach().cpu()

    @property
    def model(self) -> Any:
        """The best model that the last run reached, by the utility: a torch module, a NumPy vector, or trees."""
        if not isinstance(self._models[0], Parameters):
            return self._models[0]
        if not isinstance(self.consumer.model, nn.Module):
            return self.parameters.numpy()
        module = copy.deepcopy(self.consumer.model).cpu()
        self.consumer.task.layout.load(module, self.parameters)
        return module.eval()


def theory_sampler(consumer: Consumer, providers: Sequence[Provider], switches: int = 1) -> OSMD:
    """OSMD.from_theory for these two sides."""
    return theory_for(consumer.budget, consumer.per_round, [provider.price for provider in providers], switches)


def _layout(consumer: Consumer) -> str:
    """What the model is beside its numbers; nothing is said of a plain vector."""
    layout = consumer.task.optional_layout
    return "" if layout is None else layout_digest(zip(layout.names, layout.shapes, strict=True))


def settings_of_rules(
    sampler: Sampler,
    learner: Learner,
    aggregator: Aggregator,
    payment: Payment,
    stops: Sequence[Stop],
    defence: Defence,
    utility: Mapping[str, Any],
) -> dict[str, Any]:
    """Every rule as the terms hold it; `utility` is that already. A rule of the user's own becomes known by its
    `kind`."""
    chosen = ((SAMPLERS, [sampler]), (LEARNERS, [learner]), (AGGREGATORS, [aggregator]), (PAYMENTS, [payment]))
    for registry, rules in (*chosen, (STOPS, stops)):
        for rule in rules:
            registry.adopt(rule)
            registry.refuse_unwritable(rule)
    return {
        "sampler": SAMPLERS.settings_of(sampler),
        "aggregator": AGGREGATORS.settings_of(aggregator),
        "payment": PAYMENTS.settings_of(payment),
        "stops": [STOPS.settings_of(stop) for stop in stops],
        "utility": dict(utility),
        **({} if learner == Averaging() else {"learner": LEARNERS.settings_of(learner)}),
        **({} if defence.off else {"defence": defence.settings()}),
    }


def _ended(ledger: Ledger) -> dict[Ended, None]:
    """How every ask so far ended, each provider once a round."""
    places = ledger.terms.places
    return {
        (entry.round or 0, places[entry.provider or ""], entry.reason): None
        for entry in ledger.store.entries()
        if entry.settles
    }


def _whole(value: int, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise BazaarError(f"{name} = {value!r} must be a whole number of at least {least}")
    return int(value)
