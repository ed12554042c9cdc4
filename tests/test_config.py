"""market.toml: the defaults, the money, and one sentence for each mistake."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar.config.market_data import load_data
from databazaar.config.market_file import load_market, parse_market
from databazaar.config.sections import AUDIT, TRAIN
from databazaar.config.template import template
from databazaar.errors import BazaarError
from databazaar.learners import LEARNERS
from databazaar.settings import plain

MINIMAL: dict[str, Any] = {
    "market": {"budget": 100},
    "data": {"holdout": "holdout.csv", "target": "y"},
    "providers": [{"id": "north", "file": "north.csv"}, {"id": "south", "file": "south.csv"}],
}
PER_ACCESS = {"kind": "price-per-access"}
OSMD = ("sampler.kind", "osmd")
GONE = object()
FEDERATED = (("engine.kind", "federated"), ("federation", {"folder": "federation"}), ("providers.1.file", GONE))


def changed(*changes: tuple[str, object]) -> dict[str, Any]:
    """`MINIMAL` with settings such as "oracle.step" or "providers.0.id" replaced, or removed by `GONE`."""
    settings = copy.deepcopy(MINIMAL)
    for path, value in changes:
        steps: list[Any] = [int(part) if part.isdigit() else part for part in path.split(".")]
        *parents, last = steps
        place: Any = settings
        for parent in parents:
            place = place[parent] if isinstance(place, list) else place.setdefault(parent, {})
        if value is GONE:
            del place[last]
        else:
            place[last] = value
    return settings


def sentence_of(*changes: tuple[str, object]) -> str:
    with pytest.raises(BazaarError) as caught:
        parse_market(changed(*changes), "shop.toml")
    return str(caught.value)


def test_defaults() -> None:
    market = parse_market(MINIMAL)
    north = market.providers[0]
    assert (market.name, market.per_round, market.seed, market.budget_minor) == ("market", 10, 0, 100)
    assert (north.owner, north.price_minor) == ("north", 1)
    assert plain(market.model) == {"kind": "mlp", "hidden": [32]}
    oracle = {"kind": "local-sgd", "step": 0.1, "batch_size": 32, "epochs": 1, "steps": 64}
    assert plain(market.oracle) == oracle
    assert (market.utility.kind, market.training.step, market.training.halve_every) == ("exp-loss", 1.0, None)
    assert plain(market.sampler) == {"kind": "adaptive"}
    assert (market.consumer.train, market.data.audit) == (None, None)
    assert (plain(market.aggregator), plain(market.payment)) == ({"kind": "mean"}, PER_ACCESS)
    assert market.stops == ()
    assert (market.engine.kind, market.engine.device, market.ledger.url) == ("vectorized", "auto", None)


def test_the_template_loads_and_shows_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "market.toml"
    path.write_text(template(), encoding="utf-8")
    shown = load_market(path)
    bare = changed(("market.budget", 1000), ("data.target", "target"), ("defence.kind", "standard"))
    assert shown == parse_market(bare)


def commented() -> dict[tuple[str, str], dict[str, Any]]:
    """The settings that the template has as comments, by section and, where a comment names it, by kind."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    section = ""
    for line in template().splitlines()[3:]:
        if head := re.match(r"(?:# )?\[+(\w+)\]+", line):
            section = head[1]
        elif line.startswith("# "):
            kind = re.search(r" # for ([\w-]+): ", line)
            found.setdefault((section, kind[1] if kind else ""), {}).update(tomllib.loads(line[2:]))
    return found


def test_every_commented_choice_of_the_template_is_a_real_setting() -> None:
    shown = commented()
    by_kind = {key: settings for key, settings in shown.items() if key[1]}
    assert {("model", "cnn"), ("oracle", "stochastic-gradient")} <= set(by_kind)
    for (section, kind), settings in by_kind.items():
        model = [("model.kind", LEARNERS.find(kind).example)] if section == "learner" else []
        market = parse_market(changed((section, {"kind": kind, **settings}), *model))
        assert plain(getattr(market, section)).items() >= {"kind": kind, **settings}.items()
    plain_sections = [(section, settings) for (section, kind), settings in shown.items() if not kind]
    for section, settings in plain_sections:
        if section == "providers":
            parse_market(changed(*((f"providers.0.{name}", value) for name, value in settings.items())))
        elif section == "stops":
            parse_market(changed(("stops", [{"kind": "target-utility", "utility": settings["utility"]}])))
        elif section != "engine":
            preset = {"kind": "standard"} if section == "defence" else {}
            given = {**MINIMAL.get(section, {}), **preset, **settings}
            given.pop("dates", None)
            parse_market(changed((section, given)))
    assert shown["consumer", ""]["train"] == TRAIN and shown["data", ""]["audit"] == AUDIT


def test_money_is_read_in_minor_units() -> None:
    market = parse_market(
        changed(
            ("market.currency", "EUR"),
            ("market.decimals", 2),
            ("market.budget", "1000.50"),
            ("providers.1.price", "0.25"),
        )
    )
    assert market.currency.format(market.budget_minor) == "1000.50 EUR"
    assert [provider.price_minor for provider in market.providers] == [100, 25]


@given(
    budget=st.integers(1000, 2**63 - 1),
    seed=st.integers(0, 2**63 - 1),
    sampler=st.sampled_from(["adaptive", "osmd", "uniform"]),
    hidden=st.lists(st.integers(1, 64), min_size=1, max_size=3),
    url=st.none() | st.just("postgresql+psycopg://host/name"),
)
def test_a_market_survives_json(budget: int, seed: int, sampler: str, hidden: list[int], url: str | None) -> None:
    market = parse_market(
        changed(
            ("market.budget", budget),
            ("market.seed", seed),
            ("sampler.kind", sampler),
            ("model.hidden", hidden),
            ("ledger.url", url),
        )
    )
    again = parse_market(json.loads(json.dumps(plain(market))))
    assert again == market
    assert again.budget_minor == budget


@pytest.mark.parametrize("kind", ["linear", "logistic", "cnn", "mlp"])
@pytest.mark.parametrize("oracle", ["full-gradient", "stochastic-gradient", "local-sgd"])
def test_every_model_oracle_and_sampler_survives_json(kind: str, oracle: str) -> None:
    task = "regression" if kind == "linear" else "classification"
    for sampler in ("adaptive", "osmd", "uniform"):
        kinds = (("model.kind", kind), ("oracle.kind", oracle), ("sampler.kind", sampler))
        market = parse_market(changed(*kinds, ("data.task", task), ("market.per_round", 2)))
        assert parse_market(plain(market)) == market


@pytest.mark.parametrize(
    ("changes", "field", "remedy"),
    [
        ([("sampler.alpha", 0.1)], "sampler.alpha is set from Python alone, as Adaptive(alpha=…)", "remove it"),
        ([OSMD, ("sampler.eta", 0.1)], "sampler.eta is set from Python alone, as OSMD(eta=…)", "remove it"),
        ([("oracle.momentum", 0.1)], "oracle.momentum is set from Python alone, as LocalSGD(momentum=…)", "remove it"),
        ([("oracle.step", 0)], "oracle.step = 0 must be above 0", "change it"),
        ([("oracle.step", float("nan"))], "oracle.step = nan must be a finite number", "change it"),
        ([("oracle.step", float("inf"))], "oracle.step = inf must be a finite number", "change it"),
        ([("oracle.step", "high")], "oracle.step = 'high' must be a number", "change it"),
        (
            [("oracle", {"kind": "stochastic-gradient", "step": 0.1})],
            'oracle.step is for kind = "local-sgd" and oracle.kind = "stochastic-gradient"',
            "remove step or change the kind",
        ),
        ([("sampler", 3)], "sampler = 3 must be a section", "change it"),
        ([("sampler.kind", 3)], "sampler.kind = 3 must be text", "change it"),
        ([("utility.floor", 2)], "utility.floor is not a setting", "use kind, or remove it"),
        (
            [("sampler.kind", "greedy")],
            "sampler.kind = 'greedy' must be one of 'adaptive', 'osmd', 'uniform'",
            "change it",
        ),
        ([("oracle.stpe", 0.1)], "oracle.stpe is not a setting", "did you mean `step`?"),
        ([("samplr", {})], "samplr is not a setting", "did you mean `sampler`?"),
        ([("loss", {})], "loss is not a setting", "use market, data, consumer, model"),
        ([("providers.1.prise", "2")], "providers[1].prise is not a setting", "did you mean `price`?"),
        ([("market.per_round", 0)], "market.per_round = 0 must be between 1 and", "change it"),
        ([("market.per_round", "10")], "market.per_round = '10' must be a whole number", "change it"),
        ([("market.per_round", True)], "market.per_round = True must be a whole number", "change it"),
        ([("market.seed", -1)], "market.seed = -1 must be at least 0", "change it"),
        ([("market.decimals", 10)], "market.decimals = 10 must be between 0 and 9", "change it"),
        ([("market.name", "a\nb")], "market.name = 'a\\nb' must be visible text", "change it"),
        ([("market.budget", GONE)], "market.budget is missing", "add `budget` to market"),
        ([("market.budget", 10.5)], "market.budget = 10.5 must be a whole number or text", '"12.50"'),
        ([("market.budget", "ten")], "market.budget = 'ten' is not an amount", "write a whole number"),
        (
            [("market.budget", "Infinity")],
            "market.budget = 'Infinity' is not an amount",
            "write a whole number",
        ),
        (
            [("market.budget", "10.5")],
            "market.budget = '10.5' is not an amount with at most 0 decimals",
            "write",
        ),
        ([("market.budget", -1)], "market.budget = -1 is negative", "write an amount"),
        (
            [("market.budget", 2**63)],
            "market.budget = 9223372036854775808 is more than a ledger holds",
            "at most",
        ),
        (
            [("market.budget", 9)],
            "market.budget = 9 credits cannot pay for one round of per_round = 10",
            "raise budget to at least 10 credits",
        ),
        (
            [("providers.0.price", "11"), ("providers.1.price", "12")],
            "cannot pay for one round",
            "at least 110 credits",
        ),
        ([("consumer.train", 1)], "consumer.train = 1 must be a share of the hold-out below 1", "or a file in quotes"),
        ([("consumer.train", True)], "consumer.train = True must be a share of the hold-out", "or a file in quotes"),
        ([("data.audit", -0.1)], "data.audit = -0.1 must be a share of the hold-out", "or a file in quotes"),
        ([("data.audit", "")], "data.audit = '' must be visible text", "change it"),
        (
            [("consumer.train", 0.8), ("data.audit", 0.2)],
            "consumer.train and data.audit take 100% of the hold-out",
            "lower one of them, or name a file",
        ),
        (
            [("payment.kind", "price-per-row"), *FEDERATED],
            'payment.kind = "price-per-row" counts the rows of files',
            'use "price-per-access"',
        ),
        ([("market.patience", 4)], "market.patience is not a setting", "use budget, name, per_round"),
        ([("market", GONE)], "market is missing", "add a [market] section"),
        ([("data", GONE)], "data is missing", "add a [data] section"),
        ([("data", 3)], "data = 3 must be a section", "change it"),
        ([("data.holdout", GONE)], "data.holdout is missing", "add `holdout` to data"),
        ([("data.holdout", "")], "data.holdout = '' must be visible text", "change it"),
        ([("data.holdout", 3)], "data.holdout = 3 must be a path", "change it"),
        ([("data.target", GONE)], "data.target is missing", "add `target` to data"),
        ([("data.task", "ranking")], "data.task = 'ranking' must be one of", "'regression'"),
        ([("data.features", "amount")], "data.features = 'amount' must be a list", "change it"),
        ([("data.features", [])], "data.features = [] has 0 entries", "change it"),
        ([("data.features", ["a", 3])], "data.features[1] = 3 must be text", "change it"),
        (
            [("model.kind", "linear")],
            'model.kind = "linear" is for regression',
            'use model.kind = "auto" or "cnn" or "convnet" or "logistic" or "mlp" or "trees", or change data.task',
        ),
        (
            [("model.kind", "logistic"), ("data.task", "regression")],
            'model.kind = "logistic" is for classification',
            'use model.kind = "auto" or "cnn" or "convnet" or "linear" or "mlp" or "trees", or change data.task',
        ),
        ([("model", {"kind": "cnn", "hidden": [3]})], "model.hidden is for kind", "remove hidden"),
        ([("model.hidden", [])], "model.hidden = [] has 0 entries, and needs 1 to 100", "such as [32]"),
        ([("model.hidden", [0])], "model.hidden[0] = 0 must be between 1 and", "change it"),
        ([("model.image", [1, 2, 3])], "model.image is for kind", "remove image"),
        (
            [("model", {"kind": "cnn", "image": [1, 28]})],
            "model.image = [1, 28] has 2 entries, and needs 3",
            "[channels, height, width]",
        ),
        (
            [("utility.kind", "accuracy"), ("data.task", "regression")],
            'utility.kind = "accuracy"',
            '"exp-loss"',
        ),
        ([("model", 3)], "model = 3 must be a section", "change it"),
        (
            [("model.kind", "tree")],
            "model.kind = 'tree' must be one of 'auto', 'cnn', 'convnet', 'linear', 'logistic', 'mlp'",
            "change it",
        ),
        ([("model.kind", [1])], "model.kind = [1] must be text in quotes", "change it"),
        (
            [("oracle", {"kind": "full-gradient", "batch_size": 8})],
            'oracle.batch_size is for kind = "local-sgd" or "stochastic-gradient" and oracle.kind = "full-gradient"',
            "remove batch_size or change the kind",
        ),
        ([("oracle", {"kind": "stochastic-gradient", "batch_size": 0})], "oracle.batch_size = 0", "change it"),
        ([("oracle.step", -0.1)], "oracle.step = -0.1 must be above 0", "change it"),
        ([("training.step", 0)], "training.step = 0 must be above 0", "change it"),
        ([("training.halve_every", 0)], "training.halve_every = 0 must be between 1 and", "change it"),
        ([("engine.device", "tpu")], "engine.device = 'tpu' is not understood", '"cuda"'),
        ([("consumer.name", " shop")], "consumer.name = ' shop' must be visible text", "change it"),
        ([("consumer.name", 5)], "consumer.name = 5 must be text in quotes", "change it"),
        ([("providers", [])], "providers is empty", "add a [[providers]] section"),
        ([("providers", GONE)], "providers is empty", "add a [[providers]] section"),
        ([("providers", {"id": "a"})], "providers must be a list", "double brackets"),
        ([("providers.0.id", GONE)], "providers[0].id is missing", "add `id`"),
        (
            [("providers.1.id", "north")],
            "providers[1].id = 'north' is also the id of providers[0]",
            "its own id",
        ),
        ([("providers.1.id", "a/b")], "providers[1].id = 'a/b' must not hold a path separator", "change it"),
        ([("providers.1.id", "..")], "providers[1].id = '..' must not hold a path separator", "change it"),
        ([("providers.1.id", "a\x1bb")], "providers[1].id = 'a\\x1bb' must be visible text", "change it"),
        ([("providers.1.id", "")], "providers[1].id = '' must be visible text", "change it"),
        ([("providers.1.file", GONE)], "providers[1].file is missing for 'south'", "name its CSV"),
        ([("providers.1.price", 0)], "providers[1].price = 0", "write a price above zero"),
        (
            [("providers.1.price", 0.5)],
            "providers[1].price = 0.5 must be a whole number or text",
            "change it",
        ),
    ],
)
def test_a_mistake_gets_one_sentence(changes: list[tuple[str, object]], field: str, remedy: str) -> None:
    text = sentence_of(*changes)
    assert text.startswith("shop.toml: ")
    assert "\n" not in text
    assert field in text and remedy in text


def test_the_ledgers_password_is_not_repeated() -> None:
    text = sentence_of(("ledger.url", "user:secret@host"))
    assert "ledger.url" in text and "SQLAlchemy URL" in text
    assert "secret" not in text


def test_a_federated_market_names_its_federation() -> None:
    with pytest.raises(BazaarError, match=r"needs a \[federation\] section"):
        parse_market(changed(("engine.kind", "federated")))


def test_federated_providers_need_no_file() -> None:
    market = parse_market(changed(*FEDERATED))
    assert market.providers[1].file is None


def test_regression_allows_linear_and_exp_loss() -> None:
    market = parse_market(changed(("data.task", "regression"), ("model.kind", "linear")))
    assert (market.model.kind, market.utility.kind) == ("linear", "exp-loss")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (None, ["does not exist", "bazaar init"]),
        (b'[market]\nname = "a\n', ["not valid TOML", "line 2", "correct that line"]),
        (b"[market]\nbudget = 1\nbudget = 2\n", ["not valid TOML", "line 3", "correct that line"]),
        (b'[market]\nname = "\xff"\n', ["not UTF-8", "save the file"]),
        (b"", ["market is missing", "add a [market] section"]),
    ],
)
def test_a_file_that_is_no_market(tmp_path: Path, content: bytes | None, parts: list[str]) -> None:
    path = tmp_path / "market.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BazaarError) as caught:
        load_market(path)
    for part in (str(path), *parts):
        assert part in str(caught.value)


@pytest.mark.process
def test_importing_the_configuration_needs_no_pandas_and_no_torch() -> None:
    code = "import sys, databazaar.config.market_file; print({'pandas', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    for name in ("holdout", "north", "south"):
        (tmp_path / f"{name}.csv").write_text("a,b,y\n1,x,0\n2,y,1\n3,x,0\n")
    return tmp_path


def test_tables_and_their_digests(shop: Path) -> None:
    data = load_data(parse_market(MINIMAL), shop)
    digest = hashlib.sha256((shop / "north.csv").read_bytes()).hexdigest()
    assert data.digests == {"holdout.csv": digest, "north.csv": digest, "south.csv": digest}
    assert list(data.providers) == ["north", "south"]
    assert data.holdout.x.shape == data.providers["north"].x.shape == (3, 3)
    assert data.holdout.y.tolist() == [0, 1, 0]


def test_a_market_says_how_its_files_are_written_and_what_was_left_out(shop: Path) -> None:
    for name in ("holdout", "north", "south"):
        (shop / f"{name}.csv").write_bytes(
            "a:b:d:y\n1,5:x:01/02/2024:no\n-:\xe4:03/04/2024:yes\n3:x:05/06/2024:\n".encode("cp1252")
        )
    written = {"separator": ":", "decimal": ",", "missing": ["-"], "dates": "day-first"}
    market = parse_market(changed(*((f"data.{name}", value) for name, value in written.items())))
    data = load_data(market, shop)
    assert data.schema.class_names == ("no", "yes")
    assert data.schema.feature_names[:4] == ("a", "a (missing)", "b=x", "b=ä")
    assert data.schema.dates[0].day_first
    assert len(data.notes) == 6
    encoding, rows = data.remarks  # each is said once, with all its files
    assert encoding.startswith("holdout.csv, north.csv, south.csv: it is not UTF-8 and is read as Windows-1252")
    counted = ", ".join(f"{name}.csv (1 of 3 rows)" for name in ("holdout", "north", "south"))
    assert rows == f"{counted}: rows without 'y' are left out"
    spelled = load_data(parse_market(plain(market)), shop)
    assert spelled.schema == data.schema
    marked = changed(("data.separator", ":"), ("data.encoding", "cp1252"))
    assert len(load_data(parse_market(marked), shop).notes) == 3


@pytest.mark.parametrize("setting", ["consumer.train", "data.audit"])
def test_a_share_beside_the_other_purposes_own_share_leaves_rows_to_judge_by(shop: Path, setting: str) -> None:
    (shop / "holdout.csv").write_text("a,b,y\n" + "1,x,0\n2,y,1\n3,x,0\n" * 10)
    for share in (0.8, 0.9):
        with pytest.raises(BazaarError, match=r"so too few rows are left to judge: lower one of them, .* 0.5 and 0.2"):
            load_data(parse_market(changed((setting, share))), shop)
    assert load_data(parse_market(changed((setting, 0.4))), shop).holdout.y.size


def test_a_file_that_is_learned_from_does_not_judge_too(shop: Path) -> None:
    for setting, file, other in (
        ("data.audit", "holdout.csv", "holdout.csv"),
        ("data.audit", "copy.csv", "holdout.csv"),
        ("consumer.train", "copy.csv", "holdout.csv"),
    ):
        (shop / "copy.csv").write_bytes((shop / "holdout.csv").read_bytes())
        with pytest.raises(BazaarError, match=rf"{setting} = '{file}' is the same file as '{other}'"):
            load_data(parse_market(changed((setting, file))), shop)
    (shop / "copy.csv").write_text("a,b,y\n9,x,1\n")
    both = changed(("consumer.train", "copy.csv"), ("data.audit", "copy.csv"))
    with pytest.raises(BazaarError, match=r"data.audit = 'copy.csv' is the same file as 'copy.csv'"):
        load_data(parse_market(both), shop)


def test_remote_providers_are_left_out(shop: Path) -> None:
    assert load_data(parse_market(changed(*FEDERATED)), shop).providers == {}


@pytest.mark.parametrize(
    ("file", "content", "parts"),
    [
        ("south.csv", None, ["provider 'south'", "south.csv", "does not exist", "correct the path"]),
        ("south.csv", "a,b,y\n", ["provider 'south'", "south.csv", "no rows", "add data"]),
        ("south.csv", "a,B2,y\n1,x,0\n", ["provider 'south'", "feature column 'b'", "rename"]),
        ("south.csv", "a,b,y\n1,x,\n", ["provider 'south'", "'y' is empty in every row", "fill it in"]),
        ("south.csv", "a,b,y\n1,x,0\ninf,x,0\n", ["provider 'south'", "'a'", "data row 2", "correct it"]),
        ("holdout.csv", "a,b,z\n1,x,0\n", ["holdout.csv", "target column 'y'", "correct `target`"]),
        ("holdout.csv", "a,b,y\n1,x,no\n2,x,no\n", ["holdout.csv", "'y'", "single class no", "add hold-out rows"]),
    ],
)
def test_a_bad_file_of_a_market(shop: Path, file: str, content: str | None, parts: list[str]) -> None:
    if content is None:
        (shop / file).unlink()
    else:
        (shop / file).write_text(content)
    with pytest.raises(BazaarError) as caught:
        load_data(parse_market(MINIMAL), shop)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("image", [None, [1, 2, 2]])
def test_an_image_must_fit_the_features(shop: Path, image: list[int] | None) -> None:
    market = parse_market(changed(("model", {"kind": "cnn", "image": image})))
    with pytest.raises(BazaarError, match=r"holdout\.csv: model\.image .* 3 features: write model\.image"):
        load_data(market, shop)
