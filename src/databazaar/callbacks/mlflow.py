"""A run in MLflow: one MLflow run for each run of a market."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from databazaar.callbacks.record import final_numbers, parameters, round_numbers, words
from databazaar.errors import BazaarError
from databazaar.ledger import Terms
from databazaar.market.callback import Callback
from databazaar.market.run import Progress
from databazaar.money import Currency
from databazaar.runs.report import Report

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

MOST = 1000
"""MLflow takes so many metrics at a time."""
LONGEST = 500
"""And parameters of this many characters, in every version."""


class MLflowCallback(Callback):
    """Logs the terms as parameters, utility, loss, spent and `pay/…` of each provider as metrics with the round as
    their step, the outcome as `final/…`, and the hashes of model and ledger as tags.

    `experiment` is made where it is not there yet. `tracking_uri` is MLflow's own setting unless it is given. To go on
    in MLflow with a run that is resumed, give the `run_id` that the callback had before. Needs `databazaar[mlflow]`,
    which reaches a tracking server; to write into a database yourself, install the full mlflow.
    """

    def __init__(
        self,
        experiment: str = "databazaar",
        tracking_uri: str | None = None,
        *,
        run_name: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self.experiment = experiment
        self.tracking_uri = tracking_uri
        self.run_name = run_name
        self.run_id = run_id
        self._goes_on = run_id is not None
        self._open: tuple[MlflowClient, str] | None = None
        self._currency = Currency()

    def on_begin(self, terms: Terms) -> None:
        self._currency = terms.currency
        with _sentences("begin"):
            from mlflow.tracking import MlflowClient

            client = MlflowClient(self.tracking_uri)
            if self._goes_on and self.run_id is not None:
                client.update_run(self.run_id, status="RUNNING")
                self._open = client, self.run_id
                return
            known = client.get_experiment_by_name(self.experiment)
            place = client.create_experiment(self.experiment) if known is None else known.experiment_id
            self.run_id = str(client.create_run(place, run_name=self.run_name).info.run_id)
            self._open = client, self.run_id
            for name, value in parameters(terms).items():
                client.log_param(self.run_id, name, value[:LONGEST])

    def on_round(self, progress: Progress) -> None:
        market, pay = round_numbers(progress, self._currency)
        self._log({**market, **_pay(pay)}, progress.round)

    def on_end(self, report: Report) -> None:
        outcome, pay = final_numbers(report)
        final = {f"final/{name}": value for name, value in outcome.items()}
        self._log({**final, **_pay(pay)}, len(report.rounds))
        self._finish("FINISHED", words(report))

    def on_error(self, error: BaseException) -> None:
        if self._open is not None:
            stopped = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
            self._finish(stopped, {"error": str(error) or type(error).__name__})

    def _log(self, numbers: Mapping[str, float], step: int) -> None:
        client, run = self._begun
        with _sentences("log"):
            from mlflow.entities import Metric

            now = int(1000 * time.time())
            metrics = [Metric(name, value, now, step) for name, value in numbers.items()]
            for start in range(0, len(metrics), MOST):
                client.log_batch(run, metrics[start : start + MOST])

    def _finish(self, status: str, tags: Mapping[str, str]) -> None:
        client, run = self._begun
        with _sentences("finish"):
            for name, value in tags.items():
                client.set_tag(run, name, value[:LONGEST])
            client.set_terminated(run, status)
        self._open = None

    @property
    def _begun(self) -> tuple[MlflowClient, str]:
        assert self._open is not None
        return self._open


@contextmanager
def _sentences(doing: str) -> Iterator[None]:
    """What MLflow lacks or refuses, as something that the user can mend."""
    try:
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise BazaarError("MLflowCallback needs mlflow: `pip install 'databazaar[mlflow]'`") from None
    try:
        yield
    except ImportError as missing:
        raise BazaarError(
            f"this tracking_uri needs {missing.name}, which the full mlflow brings: `pip install mlflow`"
        ) from None
    except MlflowException as refused:
        text = " ".join(str(refused).split())[:400]
        raise BazaarError(f"MLflow could not {doing} this run ({text}): check tracking_uri and experiment") from None


def _pay(pay: Mapping[str, float]) -> dict[str, float]:
    return {f"pay/{_key(provider)}": amount for provider, amount in pay.items()}


def _key(provider: str) -> str:
    """An id as MLflow takes it in a name. Where that is another, the end of a hash keeps two ids apart.

    >>> _key("harbour-bank"), _key("Café #1")
    ('harbour-bank', 'Caf_ _1-9331fe77')
    """
    safe = re.sub(r"[^A-Za-z0-9_. -]|^\.", "_", provider)[:200]
    return safe if safe == provider else f"{safe}-{hashlib.sha256(provider.encode()).hexdigest()[:8]}"
