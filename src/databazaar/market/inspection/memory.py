"""What is remembered of every provider's answers: a few hundred numbers each, however long the model is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.defence.judge import FIRST_LOOK
from databazaar.randomness import stream

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Places = NDArray[np.bool_]
Owners = NDArray[np.int64]
TIMES, SQUARES, PERSISTS, PERSISTS_SQUARED, SAME = range(5)
"""The columns of `tallies`."""
FADE = np.float32(0.9)
"""What an answer leaves of the gains on rows before it. Beside several who know a part of the hold-out, none of them
stands out; it does once the others are gone."""
AWAY = 5.0
"""After how many lengths of its own update the model has gone elsewhere, so that who looks at its data must answer
otherwise. A single small step over few rows changes by a tenth of that for each length, or less."""
ALIKE_FROM = 5
"""From how many answers on two providers are compared: each name costs that many accesses before it shares an arm."""
RELIABLE = 0.2
"""The least share of an accumulated answer that must persist before it is compared with another."""


@dataclass(frozen=True, eq=False)
class Memory:
    r"""Of everybody who has answered, in the order of the first answers: S, the sum of the private parts u of its
    answers; an earlier answer, with the model that it was an answer to; how many answers there were, Σ‖u‖², Σy and Σy²,
    and whether it gives that one answer whatever it is asked; and the sum of its gains on the rows of the
    hold-out, with that of the others' in the same rounds.

    y_t = ⟨u_t, d_t⟩ is what an answer has in common with those before it. d_t is the direction halfway between that of
    the provider's S and that of its owner's, which is the sum over the owner's providers: S/‖S‖ where there is one. Of
    noise, of whatever shape, the mean of y is zero given the past, so Σy / √Σy² is about standard normal (a
    self-normalised martingale), also when it is summed over an owner's providers; where there is data behind the
    answers it grows like the root of their number. An owner with several different data sets still has 1/√2 or more of
    what each of them would show alone.

    `owners`, where a method takes them, are the owners of the rows, by any number that tells them apart.
    """

    who: NDArray[np.int64]
    sums: Singles
    earlier: Singles
    model: Singles
    tallies: Floats
    gains: Singles
    others: Singles

    @classmethod
    def of(cls, kept: Mapping[str, NDArray[np.generic]], size: int, rows: int) -> Memory:
        """From the arrays that `arrays` gave, or from none."""
        widths = {"sums": size, "earlier": size, "model": size, "tallies": 5, "gains": rows, "others": rows}
        none = {name: np.zeros((0, width), dtype=np.float32) for name, width in widths.items()}
        given: dict[str, Any] = {"who": np.zeros(0, dtype=np.int64), **none, **kept}
        types = {"who": np.int64, "tallies": np.float64}
        for name in ("who", *widths):
            given[name] = np.asarray(given[name], dtype=types.get(name, np.float32))
        return cls(**{name: given[name] for name in ("who", *widths)})

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def places(self, providers: Sequence[int]) -> tuple[Memory, list[int]]:
        """The memory with a place for each of these, and the places."""
        known = {int(i): place for place, i in enumerate(self.who.tolist())}
        new = [i for i in providers if i not in known]
        known.update({i: place for place, i in enumerate(new, len(self.who))})
        grown: dict[str, Any] = {name: _with_rows(rows, len(new)) for name, rows in self.arrays().items()}
        grown["who"] = np.array([*self.who.tolist(), *new], dtype=np.int64)
        return Memory(**grown) if new else self, [known[i] for i in providers]

    def with_answers(self, places: Sequence[int], units: Floats, lengths: Floats, now: Floats, same: Places) -> Memory:
        """With answers of length one to the model `now`, and with which of them are `same` as the earlier ones.

        That counts for those whom the model has moved away from, by some lengths of their update, since the earlier
        answer; from there on, this one is the earlier one. Between, nobody comes to be the same.
        """
        earlier, model, tallies = self.earlier.copy(), self.model.copy(), self.tallies.copy()
        begun = np.any(earlier[places] != 0, axis=1)
        away = begun & (np.linalg.norm(now - model[places], axis=1) >= AWAY * lengths)
        tallies[places, SAME] = np.where(away, same, same & (tallies[places, SAME] > 0))
        taken = [place for place, take in zip(places, away | ~begun, strict=True) if take]
        earlier[taken], model[taken] = units[away | ~begun].astype(np.float32), now.astype(np.float32)
        return replace(self, earlier=earlier, model=model, tallies=tallies)

    def with_private(self, places: Sequence[int], owners: Owners, parts: Floats) -> Memory:
        """With the private parts of one more answer of each, of length one before."""
        sums, tallies = self.sums.copy(), self.tallies.copy()
        before = sums[places].astype(np.float64)
        of_owners = np.stack([sums[owners == owners[place]].sum(0, dtype=np.float64) for place in places])
        halfway, _ = of_length_one(of_length_one(before)[0] + of_length_one(of_owners)[0])
        common = (halfway * parts).sum(1)
        sums[places] = (before + parts).astype(np.float32)
        tallies[places, :SAME] += np.stack([np.ones(len(common)), (parts**2).sum(1), common, common**2], axis=1)
        return replace(self, sums=sums, tallies=tallies)

    def with_gains(self, places: Sequence[int], gains: Floats, others: Floats) -> Memory:
        """With what one more answer of each has gained on the rows, and what the others' in the round have; what was
        before fades."""
        summed, beside = self.gains.copy(), self.others.copy()
        summed[places] = FADE * summed[places] + gains.astype(np.float32)
        beside[places] = FADE * beside[places] + others.astype(np.float32)
        return replace(self, gains=summed, others=beside)

    def unexplained(self, place: int, owners: Owners) -> Floats:
        """The gains of its owner on the rows beyond a·others + b, by least squares: easy rows and hard ones are so for
        everybody."""
        of_owner = owners == owners[place]
        own, beside = (rows[of_owner].sum(0, dtype=np.float64) for rows in (self.gains, self.others))
        own, beside = own - own.mean(), beside - beside.mean()
        square = float(beside @ beside)
        found: Floats = own - (float(own @ beside) / square if square > 0 else 0.0) * beside
        return found

    def signals(self, places: Sequence[int], owners: Owners, least: float) -> list[tuple[float, float] | None]:
        """What persists in the answers of each one's owner, and its standard error, in units of what does in those of
        an ordinary owner: the median. None while an ordinary owner has not shown it, by `least` standard errors."""
        _, group = np.unique(owners, return_inverse=True)
        times, persists, squares = (
            np.bincount(group, self.tallies[:, of]) for of in (TIMES, PERSISTS, PERSISTS_SQUARED)
        )
        seen = times >= FIRST_LOOK
        means, errors = persists / np.maximum(times - 1, 1), np.sqrt(squares) / np.maximum(times - 1, 1)
        if np.count_nonzero(seen) < 3:
            return [None] * len(places)
        ordinary = float(np.median(means[seen]))
        shown = np.median(np.divide(means, errors, out=np.zeros_like(means), where=errors > 0)[seen])
        if shown < least or ordinary <= 0:
            return [None] * len(places)
        return [
            (float(means[at] / ordinary), float(errors[at] / ordinary)) if seen[at] and errors[at] > 0 else None
            for at in group[list(places)].tolist()
        ]

    def alike(self, place: int) -> list[tuple[int, float]]:
        r"""The cosine of what persists in this one's answers and in those of each other that has given enough.

        ⟨S_i, S_j⟩ is not moved by what does not persist, but ‖S‖² is, by Σ‖u‖²: the cosine is
        ⟨S_i, S_j⟩ / √((‖S_i‖² − Q_i)(‖S_j‖² − Q_j)), which is the correction for attenuation.
        """
        times = self.tallies[:, TIMES]
        sums = self.sums.astype(np.float64)
        lengths = (sums**2).sum(1)
        persist = np.maximum(lengths - self.tallies[:, SQUARES], 0.0)
        ready = (times >= ALIKE_FROM) & (persist > RELIABLE * lengths)
        if not ready[place]:
            return []
        ready[place] = False
        others = np.flatnonzero(ready)
        cosines = (sums[others] @ sums[place]) / np.sqrt(persist[others] * persist[place])
        return list(zip(others.tolist(), np.minimum(cosines, 1.0).tolist(), strict=True))


def of_length_one(vectors: Floats) -> tuple[Floats, Floats]:
    """The vectors' directions, and their lengths."""
    lengths = np.linalg.norm(vectors, axis=1)
    units = np.divide(vectors, lengths[:, None], out=np.zeros_like(vectors), where=lengths[:, None] > 0)
    return units, lengths


def _with_rows(array: NDArray[Any], more: int) -> NDArray[Any]:
    """With so many rows of zeros at its end."""
    return np.concatenate([array, np.zeros((more, *array.shape[1:]), dtype=array.dtype)])


SIZE = 256
"""The numbers of a sketch. Shorter vectors are their own."""


@dataclass(frozen=True, eq=False)
class Sketch:
    r"""A linear map to `SIZE` numbers: number k is the sum of the entries k, k + SIZE, …, each with a random sign.

    With signs ε, ⟨Sx, Sy⟩ = Σ ε_i ε_j x_i y_j over i ≡ j, so its mean is ⟨x, y⟩ and its variance is at most
    2 ‖x‖² ‖y‖² / SIZE (the count sketch of Charikar, Chen and Farach-Colton, 2002, with buckets in turn). The signs are
    the same for all rounds and providers.
    """

    signs: Tensor | None

    @classmethod
    def of(cls, params: Tensor) -> Sketch:
        if len(params) <= SIZE:
            return cls(None)
        rows = -(-len(params) // SIZE)
        signs = stream(0, 0, "sketch").integers(0, 2, rows * SIZE) * 2 - 1
        signs[len(params) :] = 0
        return cls(torch.from_numpy(signs).to(params))

    def __call__(self, vectors: Tensor) -> Tensor:
        """[m, d] → [m, min(d, SIZE)], on the CPU."""
        if self.signs is None:
            return vectors.double().cpu()
        padded = torch.nn.functional.pad(vectors, (0, len(self.signs) - vectors.shape[1]))
        return (padded * self.signs).view(len(vectors), -1, SIZE).sum(1).double().cpu()
