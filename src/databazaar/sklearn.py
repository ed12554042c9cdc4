"""The market as scikit-learn estimators: `MarketClassifier` and `MarketRegressor`. Needs `databazaar[sklearn]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from databazaar.defence import Defence
from databazaar.display import listed
from databazaar.errors import BazaarError
from databazaar.learning.models import build_model
from databazaar.learning.oracles import Oracle
from databazaar.learning.task import Schedule
from databazaar.learning.torch_state import limited_threads
from databazaar.learning.utilities import UtilityFunction
from databazaar.market.arbiter import Arbiter
from databazaar.market.callback import Callback
from databazaar.market.run import OnRound
from databazaar.models import OF_COLUMNS
from databazaar.parties import Consumer, Provider
from databazaar.runs.report import Report
from databazaar.samplers import Sampler, Uniform
from databazaar.stops import Stop
from databazaar.utilities import Utility

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data
except ImportError:
    raise BazaarError("the estimators need scikit-learn: `pip install 'databazaar[sklearn]'`") from None

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MarketClassifier", "MarketRegressor"]

Array = NDArray[Any]
Rows = tuple[Array, Array]
Sellers = Mapping[str, tuple[Any, Any]] | Sequence[Provider]


class _MarketEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: rows of consumer and providers go in, a market is played, a model comes out."""

    _regresses: bool
    _plain: str
    _center: Array | float
    _spread: Array | float

    def __init__(
        self,
        model: str | nn.Module | None = None,
        *,
        budget: int = 300,
        per_round: int = 10,
        hidden: Sequence[int] = (32,),
        sampler: Sampler | None = None,
        oracle: Oracle | None = None,
        utility: str | Utility | UtilityFunction = "exp-loss",
        step: float | Schedule = 1.0,
        stops: Sequence[Stop] = (),
        defence: str | Defence | None = None,
        standardize: bool = True,
        engine: str = "vectorized",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.model = model
        self.budget = budget
        self.per_round = per_round
        self.hidden = hidden
        self.sampler = sampler
        self.oracle = oracle
        self.utility = utility
        self.step = step
        self.stops = stops
        self.defence = defence
        self.standardize = standardize
        self.engine = engine
        self.device = device
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        providers: Sellers | None = None,
        provider_of: Any = None,
        callbacks: Sequence[Callback | OnRound] = (),
    ) -> Self:
        """Plays the market. `X` and `y` are the consumer's own rows, which judge what is bought.

        `providers` are rows by name, `{"north": (X, y), …}`, or a list of Provider. Or `provider_of` says for each row
        of `X` which provider has it; None, NaN, "" or −1 are the consumer's own. With neither, nobody sells: the model
        is trained on the own rows alone, for as many rounds as the budget would have paid, and nothing is spent.
        """
        checks = {"dtype": np.float64, "ensure_all_finite": self._finite}
        X, y = validate_data(self, X, y, y_numeric=self._regresses, ensure_min_samples=2, **checks)
        if provider_of is not None:
            if providers is not None:
                raise BazaarError("providers and provider_of say the same thing: give one of them")
            X, y, providers = _parted(X, y, provider_of)
        self._center, self._spread = _scales(X) if self.standardize and not self._of_columns else (0.0, 1.0)
        self._learn_targets(y)
        seed, own = self._seed(), (self._inputs(X), self._targets(y))
        consumer, alone = self._consumer(own, seed), providers is None
        if alone:  # nobody sells: the own rows answer every round, once
            consumer = replace(consumer, budget=max(1, self.budget // self.per_round), per_round=1)
        arbiter = Arbiter(
            consumer,
            [Provider("own rows", own, self.oracle)] if providers is None else self._sellers(providers),
            Uniform() if alone else self.sampler,
            stops=tuple(self.stops),
            engine=self.engine,
            device=self.device,
            seed=seed,
            defence=None if alone else self.defence,
        )
        try:
            report = arbiter.run(callbacks=list(callbacks))
        finally:
            arbiter.close()
        self.report_: Report | None = None if alone else report
        self.model_: Any = arbiter.model  # a torch module, trees, or a blend
        if isinstance(self.model_, nn.Module):
            self.model_.double()
        return self

    def _consumer(self, own: Rows, seed: int) -> Consumer:
        """All own rows are the hold-out. This is the place for own rows that train before anything is bought."""
        model = self._plain if self.model is None else self.model
        if isinstance(model, str) and not self._of_columns:
            model = build_model(model, [own[0].shape[1]], self._outputs, hidden=tuple(self.hidden), seed=seed)
        return Consumer(
            model, budget=self.budget, holdout=own, utility=self.utility, per_round=self.per_round, step=self.step
        )

    def _sellers(self, providers: Sellers) -> list[Provider]:
        """Providers whose rows are as the model takes them; one that keeps its rows answers as it likes."""
        if isinstance(providers, Mapping):
            return [Provider(str(name), self._rows_of(name, rows), self.oracle) for name, rows in providers.items()]
        if not all(isinstance(one, Provider) for one in providers):
            raise BazaarError(
                'providers are rows by name, {"north": (X, y), …}, or a list of Provider: give one of these, or say '
                "whose each row of X is by provider_of"
            )
        return [p if p.data is None else replace(p, data=self._rows_of(p.id, p.data)) for p in providers]

    def _rows_of(self, name: object, rows: tuple[Any, Any]) -> Rows:
        try:
            x, y = rows
            X = validate_data(self, x, reset=False, dtype=np.float64, ensure_all_finite=self._finite)
            return self._inputs(X), self._targets(column_or_1d(check_array(y, ensure_2d=False, dtype=None)))
        except (ValueError, TypeError, BazaarError) as reason:
            raise BazaarError(f"provider {name}: {' '.join(str(reason).split())}") from None

    @property
    def _finite(self) -> bool | str:
        """Whether features must all be there: models of columns take NaN."""
        return "allow-nan" if self._of_columns else True

    @property
    def _of_columns(self) -> bool:
        return isinstance(self.model, str) and self.model in OF_COLUMNS

    def _seed(self) -> int:
        generator = check_random_state(self.random_state)
        given = self.random_state
        return int(given if isinstance(given, Integral) else generator.randint(2**31 - 1))

    def _inputs(self, X: Array) -> Array:
        scaled: Array = (X - self._center) / self._spread
        return scaled

    def _raw(self, X: Any) -> Array:
        """The model's outputs for new rows, in double precision."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=self._finite)
        if not isinstance(self.model_, nn.Module):
            scores: Array = self.model_.outputs(self._inputs(X))
            return scores if scores.shape[1] == self._outputs else np.column_stack([np.zeros(len(scores)), scores])
        with torch.no_grad(), limited_threads(sum(one.numel() for one in self.model_.parameters())):
            outputs: Array = self.model_(torch.from_numpy(self._inputs(X))).numpy()
        return outputs

    @property
    def payouts_(self) -> pd.DataFrame:
        """Who was paid what, one row a provider, as `report_.to_frame()`; empty where nobody sold."""
        import pandas as pd

        check_is_fitted(self)
        return pd.DataFrame() if self.report_ is None else self.report_.to_frame()

    @property
    def _outputs(self) -> int:
        raise NotImplementedError

    def _learn_targets(self, y: Array) -> None:
        raise NotImplementedError

    def _targets(self, y: Array) -> Array:
        raise NotImplementedError


class MarketClassifier(ClassifierMixin, _MarketEstimator):  # type: ignore[misc]
    """A classifier that is trained by buying from providers within a budget.

    `model` is logistic (also where none is given), mlp (with `hidden` layers), trees, auto, or a torch module with one
    output for each class. `budget` is in accesses where providers ask one credit each, and `per_round` of them make a
    round. `sampler` decides whom to ask (by gain per coin unless one is given), `oracle` how providers train; networks
    are trained on providers' rows unless one is given. `defence` is what is done against those who play for the money:
    nothing, "standard", "strict", or a Defence.
    `standardize` brings columns to one scale by the consumer's rows. Labels may be anything; the consumer's rows
    say which there are.

    After `fit`: `classes_`, `model_` (a torch module, or trees), `report_` and `payouts_`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(90, 3)); y = np.where(x[:, 0] > 0, "good", "bad")
    >>> sellers = {"clean": (x[30:60], y[30:60]), "random": (x[60:], rng.permutation(y[60:]))}
    >>> bought = MarketClassifier(budget=200, per_round=4, random_state=0).fit(x[:30], y[:30], providers=sellers)
    >>> bought.predict([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]]).tolist(), int(bought.payouts_["pay"].sum())
    (['good', 'bad'], 200)
    """

    _regresses, _plain = False, "logistic"
    classes_: Array

    def _learn_targets(self, y: Array) -> None:
        check_classification_targets(y)
        self.classes_ = np.unique(y)

    def _targets(self, y: Array) -> Array:
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise BazaarError(
                f"label {y[unknown].tolist()[0]!r} is not among the consumer's own ({listed(self.classes_.tolist())}): "
                "leave those rows out, or add a row of that class to the consumer's"
            )
        return np.searchsorted(self.classes_, y)

    @property
    def _outputs(self) -> int:
        return max(2, len(self.classes_))

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, in the order of `classes_`."""
        logits = torch.from_numpy(self._raw(X)[:, : len(self.classes_)])
        chances: Array = torch.softmax(logits, 1).numpy()
        return chances

    def predict(self, X: Any) -> Array:
        """The likeliest class of each row."""
        chances = self.predict_proba(X)
        found: Array = self.classes_[chances.argmax(1)]
        return found


class MarketRegressor(RegressorMixin, _MarketEstimator):  # type: ignore[misc]
    """A regressor that is trained by buying from providers within a budget.

    As MarketClassifier, with linear, mlp, trees, auto or a torch module with one output as `model`. `standardize`
    brings the target to one scale too; predictions are in its own units.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(90, 2)); y = 1000 + 50 * x[:, 0]
    >>> whose = np.repeat(["", "north", "south"], 30)
    >>> bought = MarketRegressor(budget=60, per_round=2, random_state=0).fit(x, y, provider_of=whose)
    >>> bought.predict([[1.0, 0.0]]).round(-1)
    array([1050.])
    """

    _regresses, _plain = True, "linear"
    _outputs = 1
    _target_center: Array | float
    _target_spread: Array | float

    def _learn_targets(self, y: Array) -> None:
        self._target_center, self._target_spread = _scales(y) if self.standardize else (0.0, 1.0)

    def _targets(self, y: Array) -> Array:
        scaled: Array = (y.astype(np.float64) - self._target_center) / self._target_spread
        return scaled

    def predict(self, X: Any) -> Array:
        """The target of each row, in its own units."""
        predicted: Array = self._raw(X).reshape(-1) * self._target_spread + self._target_center
        return predicted


def _scales(values: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each column; a column that never varies is only centred."""
    spread = values.std(0)
    return values.mean(0), np.where(spread > 0, spread, 1.0)


def _parted(X: Array, y: Array, provider_of: Any) -> tuple[Array, Array, dict[str, Rows]]:
    """The consumer's own rows, and those of each provider by name."""
    import pandas as pd

    names = np.asarray(provider_of, dtype=object).ravel()
    if len(names) != len(X):
        raise BazaarError(f"provider_of names {len(names)} rows, and X has {len(X)}: name the provider of each row")
    own = np.array([bool(pd.isna(name)) or name in ("", -1) for name in names])
    if own.sum() < 2 or own.all():
        raise BazaarError(
            f"provider_of leaves {own.sum()} of {len(X)} rows to the consumer: name a provider for some of them, and "
            'None or "" for at least two'
        )
    texts = np.array([str(name) for name in names], dtype=object)
    return X[own], y[own], {name: (X[texts == name], y[texts == name]) for name in dict.fromkeys(texts[~own])}
