"""Folders of images as tables: what is read, what is refused, and what becomes of an image."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from databazaar import BazaarError
from databazaar.config.discover import tables_at
from databazaar.data import images
from databazaar.data.rowwise import encode_rowwise
from databazaar.data.tables import Schema, holds_images, read_table
from databazaar.data.tree_features import TreeFeatures


def picture(seed: int = 0, size: tuple[int, int] = (8, 6), mode: str = "L", format: str = "PNG", **more: Any) -> bytes:
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels, mode).save(content, format, **more)
    return content.getvalue()


def class_folder(folder: Path, each: int = 3, **more: Any) -> Path:
    for place, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            (folder / name / f"{number}.png").write_bytes(picture(10 * place + number, **more))
    return folder


def indexed(folder: Path, names: list[str]) -> Path:
    folder.mkdir(parents=True)
    (folder / "one.png").write_bytes(picture(1))
    pd.DataFrame({"photo": names, "kind": ["a", "b"] * (len(names) // 2)}).to_csv(folder / "index.csv", index=False)
    return folder


def fitted(path: Path, image: images.Size | None = None) -> Schema:
    return Schema.fit(read_table(path).frame, target="label", task="classification", image=image)


def refused(path: Path) -> str:
    with pytest.raises(BazaarError) as reason:
        read_table(path)
    return str(reason.value)


def test_a_folder_of_class_folders_is_a_table(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "north")
    (folder / "cat" / "notes.txt").write_text("none")
    (folder / ".hidden").mkdir()
    table = read_table(folder)
    assert table.frame["label"].tolist() == ["cat"] * 3 + ["dog"] * 3
    assert table.frame["image"][4] == (folder / "dog" / "1.png").read_bytes()
    assert read_table(folder).digest == table.digest
    (folder / "dog" / "1.png").write_bytes(picture(99))
    assert read_table(folder).digest != table.digest
    schema = fitted(folder)
    assert schema.images[0].size == (1, 6, 8) and schema.width == 48 and schema.class_names == ("cat", "dog")
    x, y = schema.encode(table.frame, "north")
    assert x.shape == (6, 48) and y.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_table_in_a_folder_names_its_images(tmp_path: Path) -> None:
    folder = indexed(tmp_path / "north", ["one.png", " one.png", "one.png", "one.png"])
    frame = read_table(folder).frame
    assert frame["photo"].tolist() == [picture(1)] * 4 and frame["kind"].tolist() == ["a", "b", "a", "b"]
    before = read_table(folder).digest
    (folder / "one.png").write_bytes(picture(2))
    assert read_table(folder).digest != before


def test_nothing_outside_of_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(picture(5))
    for place, name in enumerate(("../secret.png", str(tmp_path / "secret.png"), "link.png", "gone.png")):
        folder = indexed(tmp_path / f"north{place}", [name, "one.png"])
        (folder / "link.png").symlink_to(tmp_path / "secret.png")
        expected = "is not there" if name == "gone.png" else "lies outside of the folder"
        assert expected in refused(folder)
    linked = class_folder(tmp_path / "south")
    (linked / "dog" / "9.png").symlink_to(tmp_path / "secret.png")
    (linked / "bird").symlink_to(linked / "cat")
    assert len(read_table(linked).frame) == 6
    (tmp_path / "alias").symlink_to(linked)
    assert not holds_images(tmp_path / "alias")


def test_which_folders_are_images(tmp_path: Path) -> None:
    class_folder(tmp_path / "north")
    indexed(tmp_path / "south", ["one.png", "one.png"])
    (tmp_path / "other" / "cat").mkdir(parents=True)
    (tmp_path / "own.csv").write_text("a,b\n1,2\n")
    assert sorted(path.name for path in tables_at([tmp_path])) == ["north", "own.csv", "south"]
    assert "no class folders with images" in refused(tmp_path / "other")
    (tmp_path / "south" / "more.csv").write_text("a\n1\n")
    assert "has 2 tables" in refused(tmp_path / "south")


def test_images_that_cannot_be_used_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = class_folder(tmp_path / "north")
    schema, good = fitted(folder), read_table(folder).frame
    for blob, sentence in (
        (b"no image", "cannot be read as 'PNG'"),
        (picture(format="TIFF"), "cannot be read as 'PNG'"),
        (picture(format="GIF"), "cannot be read as 'PNG'"),
        (picture(size=(64, 64))[:200], "is broken"),
    ):
        frame = good.assign(image=[*good["image"][:5], blob])
        with pytest.raises(BazaarError, match="data row 6") as reason:
            schema.encode_features(frame, "north")
        assert sentence in str(reason.value)
        assert not encode_rowwise(schema, frame)[0][5].any()
    monkeypatch.setattr(images, "MOST_PIXELS", 47)
    with pytest.raises(BazaarError, match="8 × 6 pixels: shrink it"):
        schema.encode_features(good, "north")
    monkeypatch.setattr(images, "MOST_BYTES", 10)
    assert "is no file of at most" in refused(folder)
    monkeypatch.setattr(images, "MOST_IMAGES", 5)
    assert "6 images, more than 5" in refused(folder)


@pytest.mark.parametrize(
    ("size", "sentence"),
    [
        ((2, 8, 8), r"grey\) or 3 \(RGB\), not 2: correct image = \[2, 8, 8\]"),
        ((3, 10**7, 10**7), r"300000000000000 features, more than 100000: make it smaller"),
    ],
)
def test_sizes_that_no_image_may_have_are_refused(size: images.Size, sentence: str, tmp_path: Path) -> None:
    frame = read_table(class_folder(tmp_path / "north")).frame
    with pytest.raises(BazaarError, match=sentence):
        Schema.fit(frame, target="label", task="classification", image=size)


def test_texts_are_no_images_and_trees_take_none(tmp_path: Path) -> None:
    schema = fitted(class_folder(tmp_path / "north"))
    table = pd.DataFrame({"image": ["a.png", "b.png"], "label": ["cat", "dog"]})
    with pytest.raises(BazaarError, match="holds no images and the hold-out has images"):
        schema.encode_features(table, "south")
    with pytest.raises(BazaarError, match=r'trees take no images, .* use model\.kind = "convnet"'):
        TreeFeatures(schema).encode_features(read_table(tmp_path / "north").frame, "north")


@given(
    width=st.integers(1, 12),
    height=st.integers(1, 12),
    mode=st.sampled_from(["L", "RGB"]),
    channels=st.sampled_from([1, 3]),
    format=st.sampled_from(["PNG", "BMP"]),
)
def test_pixels_are_those_of_the_image(width: int, height: int, mode: str, channels: Any, format: str) -> None:
    blob = picture(3, (width, height), mode, format)
    found = images.pixels(blob, (channels, height, width))
    whole = np.asarray(Image.open(io.BytesIO(blob)).convert("L" if channels == 1 else "RGB"), dtype=np.float32)
    np.testing.assert_allclose(found, np.atleast_3d(whole).transpose(2, 0, 1) / 255, rtol=1e-6)
    assert images.pixels(blob, (channels, 4, 5)).shape == (channels, 4, 5)


def test_numbers_are_standardised_by_the_holdout(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "north", each=20, mode="RGB", size=(9, 9))
    schema, frame = fitted(folder), read_table(folder).frame
    x = schema.encode_features(frame, "north").reshape(-1, 3, 81)
    assert schema.images[0].size == (3, 9, 9)
    np.testing.assert_allclose(x.mean((0, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(x.std((0, 2)), 1, atol=1e-4)
    assert not schema.encode_features(frame.assign(image=None), "north").any()
    assert fitted(folder, (1, 4, 5)).width == 20
    assert fitted(class_folder(tmp_path / "large", size=(80, 70))).images[0].size == (1, 32, 32)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": [2, 4, 4]},
        {"size": [1, 0, 4]},
        {"size": [1, 4, 10**6]},
        {"size": [1, 4]},
        {"means": []},
        {"means": [0.1, 0.2]},
        {"scales": [0.0]},
        {"scales": [float("nan")]},
        {"path": "/etc"},
    ],
)
def test_a_schema_with_images_is_checked(changes: dict[str, Any], tmp_path: Path) -> None:
    message = json.loads(json.dumps(fitted(class_folder(tmp_path / "north")).to_dict()))
    assert Schema.from_dict(message).to_dict() == Schema.from_dict(message).to_dict()
    message["images"][0] |= changes
    with pytest.raises(BazaarError, match=r"use a schema that Schema\.to_dict wrote"):
        Schema.from_dict(message)
    many = {**message["images"][0], "size": [3, 200, 200]}
    with pytest.raises(BazaarError):
        Schema.from_dict({**message, "images": [many]})
