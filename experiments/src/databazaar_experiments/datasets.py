"""The paper's image datasets by name, kept as one `.npz` each: x_train, y_train, x_test, y_test, in uint8."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError

Bytes = NDArray[np.uint8]
PARTS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True)
class Source:
    """Where a dataset comes from, and the mean and deviation its pixels are normalised by."""

    file: str
    openml: str
    training: int
    mean: float
    deviation: float


SOURCES = {
    "mnist": Source("mnist.npz", "mnist_784", 60_000, 0.1307, 0.3081),
    "fmnist": Source("fmnist.npz", "Fashion-MNIST", 60_000, 0.2861, 0.3530),
    "kmnist": Source("kmnist.npz", "Kuzushiji-MNIST", 60_000, 0.1918, 0.3483),
    "cifar10": Source("cifar10_gray.npz", "CIFAR_10", 50_000, 0.5, 0.5),
}


@dataclass(frozen=True)
class Images:
    """Images [count, height, width] and labels, as they come."""

    x_train: Bytes
    y_train: Bytes
    x_test: Bytes
    y_test: Bytes


def data_folder(given: Path | None = None) -> Path:
    """The folder that holds the datasets: the one given, else $BAZAAR_DATA, else a cache in the home folder."""
    if given is not None:
        return given
    named = os.environ.get("BAZAAR_DATA")
    return Path(named) if named else Path.home() / ".cache" / "databazaar" / "datasets"


def load_images(name: str, folder: Path | None = None) -> Images:
    """A dataset from its file, which is fetched from OpenML the first time."""
    if name not in SOURCES:
        raise BazaarError(f"dataset {name!r} is unknown: use one of {', '.join(SOURCES)}")
    path = data_folder(folder) / SOURCES[name].file
    if not path.exists():
        _fetch(name, path)
    try:
        with np.load(path, allow_pickle=False) as file:
            return Images(*(file[part] for part in PARTS))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        raise BazaarError(f"{path} is not a dataset with {', '.join(PARTS)}: remove it, it is fetched again") from None


def _fetch(name: str, path: Path) -> None:
    remedy = (
        f"put {path.name} into a folder and name it with --data-dir or BAZAAR_DATA, "
        f"or go online, where it is fetched into {path.parent}"
    )
    try:
        from sklearn.datasets import fetch_openml
    except ImportError:
        raise BazaarError(f"{path} is not there, and fetching it needs scikit-learn: {remedy}") from None
    try:
        fetched: Any = fetch_openml(SOURCES[name].openml, version=1, as_frame=False, parser="liac-arff")
    except Exception as reason:  # whatever the network, the server or the parser raises
        raise BazaarError(f"{path} is not there and cannot be fetched ({type(reason).__name__}): {remedy}") from None
    images = _square(fetched.data.astype(np.uint8))
    labels = fetched.target.astype(np.uint8)
    cut = SOURCES[name].training
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".partial.npz")
    np.savez_compressed(draft, x_train=images[:cut], y_train=labels[:cut], x_test=images[cut:], y_test=labels[cut:])
    draft.replace(path)


def _square(flat: Bytes) -> Bytes:
    """[count, height, width]; colour images, which come as three planes, are turned to their luma (BT.601)."""
    if flat.shape[1] == 3 * 32 * 32:
        planes = flat.reshape(len(flat), 3, 32, 32).astype(np.float32)
        luma: Bytes = np.rint(np.tensordot([0.299, 0.587, 0.114], planes, ([0], [1]))).astype(np.uint8)
        return luma
    side = int(flat.shape[1] ** 0.5)
    return flat.reshape(len(flat), side, side)
