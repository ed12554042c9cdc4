"""Folders of images as tables: a folder for each class, or one table in the folder with a column of file names.

The cells of such a column are the bytes of image files. A file is one of its folder: a link, or a name that leads
elsewhere, is refused. Pillow decodes the bytes (extra `images`), the usual formats alone, within bounds of size; images
come from other parties.
"""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from databazaar.data.columns import Column, listed
from databazaar.data.memory_limits import refuse_too_large, table_room
from databazaar.errors import BazaarError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
IMAGE, LABEL = "image", "label"
"""The columns of a folder of class folders."""
MOST_IMAGES, MOST_BYTES, MOST_PIXELS = 10**6, 32 * 2**20, 2**26
"""Of a folder; of a file; of an image."""
LARGEST, USUAL = 64, 32
"""Images up to so many pixels a side stay as large as they are; larger ones become a square of the usual side."""
LOOKED_AT = 100
Size = tuple[int, int, int]
"""Channels (1 is grey, 3 is RGB), height and width."""


def is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def class_folders(path: Path) -> dict[str, list[Path]]:
    """The images of each folder in a folder that has some, by name; links are left out."""
    found = {}
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            names = [one.name for one in os.scandir(entry.path) if one.is_file(follow_symlinks=False)]
            if images := sorted(filter(is_image, names)):
                found[entry.name] = [Path(entry.path, name) for name in images]
    return found


def read_class_folders(path: Path) -> tuple[pd.DataFrame, str]:
    """`image` and `label` of each image, and the SHA-256 of all names and bytes."""
    files = [(label, file) for label, images in class_folders(path).items() for file in images]
    content = _contents(path, [file for _, file in files])
    frame = pd.DataFrame({IMAGE: pd.Series(content, dtype=object), LABEL: [label for label, _ in files]})
    return frame, _digest([file.relative_to(path).as_posix() for _, file in files], content)


def with_images(frame: pd.DataFrame, folder: Path, digest: str) -> tuple[pd.DataFrame, str]:
    """A table whose columns of image files' names hold the bytes of these files, and the SHA-256 of all."""
    for name in map(str, frame.columns):
        given = frame[name].dropna()
        if len(given) and given.map(lambda value: isinstance(value, str) and is_image(Path(value).name)).all():
            names = given.map(str.strip)
            content = _contents(folder, [_inside(folder, one) for one in names])
            column = pd.Series(content, index=given.index, dtype=object).reindex(frame.index)
            frame, digest = frame.assign(**{name: column}), _digest([digest, *names], content)
    return frame, digest


def _inside(folder: Path, name: str) -> Path:
    path = folder / name
    if Path(name).is_absolute() or not path.resolve().is_relative_to(folder.resolve()):
        raise BazaarError(f"the image {name!r} lies outside of the folder: put it into the folder, or drop the row")
    return path


def _contents(folder: Path, files: Sequence[Path]) -> list[bytes]:
    if len(files) > MOST_IMAGES:
        raise BazaarError(f"{folder} has {len(files):,} images, more than {MOST_IMAGES:,}: leave some out")
    sizes = []
    for file in files:
        try:
            sizes.append(file.stat().st_size)
        except OSError:
            raise BazaarError(f"the image {file} is not there: correct its name, or drop the row") from None
        if not file.is_file() or sizes[-1] > MOST_BYTES:
            raise BazaarError(f"{file} is no file of at most {MOST_BYTES // 2**20} MiB: leave it out or shrink it")
    refuse_too_large(sum(sizes), table_room(), str(folder))
    return [file.read_bytes() for file in files]


def _digest(names: Sequence[str], content: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0")
    for blob in content:
        digest.update(hashlib.sha256(blob).digest())
    return digest.hexdigest()


def holds_bytes(column: Column) -> bool:
    """Whether the cells are bytes of files, some of which may be missing."""
    given = column.dropna()
    return bool(len(given)) and pd.api.types.infer_dtype(given, skipna=True) == "bytes"


def usual_size(column: Column) -> Size:
    """The size that suits the first images of a column: their own where it is small."""
    sizes, grey = Counter[tuple[int, int]](), True
    for blob in column.dropna().tolist()[:LOOKED_AT]:
        with _opened(blob) as image:
            sizes[(image.height, image.width)] += 1
            grey = grey and image.mode in ("1", "L", "LA", "I", "I;16")
    height, width = min(sizes, key=lambda size: (-sizes[size], size))
    sides = (height, width) if max(height, width) <= LARGEST else (USUAL, USUAL)
    return (1 if grey else 3, *sides)


def pixels(blob: bytes, size: Size) -> npt.NDArray[np.float32]:
    """An image as numbers from 0 to 1 [channels, height, width]."""
    from PIL import Image

    channels, height, width = size
    with _opened(blob) as image:
        try:
            small = image.convert("L" if channels == 1 else "RGB").resize((width, height), Image.Resampling.BILINEAR)
        except (OSError, SyntaxError, ValueError) as reason:
            raise BazaarError(f"an image is broken ({reason!s:.80}): save it again, or leave it out") from None
        found = np.asarray(small, dtype=np.float32).reshape(height, width, channels) / 255
    return np.ascontiguousarray(found.transpose(2, 0, 1))


def _opened(blob: Any) -> Any:
    """An image that is not decoded yet."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise BazaarError("Pillow is needed to read images: pip install 'databazaar[images]'") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(blob), formats=FORMATS)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as reason:
        raise BazaarError(
            f"an image cannot be read as {listed(FORMATS)} ({type(reason).__name__}): save it again, or leave it out"
        ) from None
    if image.width * image.height > MOST_PIXELS:
        raise BazaarError(f"an image has {image.width:,} × {image.height:,} pixels: shrink it, or leave it out")
    return image
