"""After the purchase: predict, evaluate and export. Each takes a run's folder, or a model folder that was copied."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from databazaar.cli.options import AsJson
from databazaar.cli.screen import say
from databazaar.errors import BazaarError

if TYPE_CHECKING:
    import pandas as pd

    from databazaar.runs.trained import TrainedModel

From = Annotated[Path, typer.Argument(help="The run's folder, or a model folder.")]
Table = Annotated[Path, typer.Argument(help="A CSV or Parquet file.")]

WORDS = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "auc": "AUC",
    "brier": "Brier score",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
}
UNDEFINED = {"auc": "all rows are of one class", "r2": "all targets are the same number"}

PREDICT_EXAMPLES = (
    "bazaar predict runs/fraud new.csv > predictions.csv",
    "bazaar predict runs/fraud new.parquet --keep --out predictions.parquet",
)
EVALUATE_EXAMPLES = (
    "bazaar evaluate runs/fraud test.csv",
    "bazaar evaluate copied/model test.csv --json --out quality",
)
EXPORT_EXAMPLES = ("bazaar export runs/fraud", "bazaar export runs/fraud --out fraud.onnx")


def predict(
    folder: From,
    table: Table,
    out: Annotated[
        Path | None, typer.Option(help="Write to this .csv or .parquet file.  [default: CSV on standard output]")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the table's own columns before the predictions.")] = False,
) -> None:
    """What the bought model says of new rows, one line a row in their order. They need no target."""
    if out is not None and out.suffix.lower() not in (".csv", ".parquet"):
        raise BazaarError(f"--out {out}: write to a .csv or a .parquet file")
    import pandas as pd

    from databazaar.files import write_whole
    from databazaar.runs.trained import load

    trained = load(folder)
    frame = _read(trained, table)
    predictions = trained.predict(frame, str(table))
    if keep:
        if taken := [name for name in predictions.columns if name in frame.columns]:
            raise BazaarError(f"{table}: the table has a column {taken[0]!r} already: rename it, or leave --keep out")
        predictions = pd.concat([frame, predictions], axis=1)
    if out is None:
        typer.echo(predictions.to_csv(index=False), nl=False)
        return
    packed = out.suffix.lower() == ".parquet"
    write_whole(out, predictions.to_parquet(index=False) if packed else predictions.to_csv(index=False).encode())
    say(f"{out}: {len(predictions):,} predictions")


def _read(trained: TrainedModel, table: Path) -> pd.DataFrame:
    read = trained.read_table(table)
    for note in read.notes:
        _note(f"{table}: {note}")
    return read.frame


def _note(text: str) -> None:
    say(f"bazaar: note: {text}", err=True)


def evaluate(
    folder: From,
    table: Table,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the figures and metrics.json.  [default: RUN/evaluation]")
    ] = None,
) -> None:
    """How good the bought model is on rows with a target: plain metrics with 95 % intervals, and figures."""
    from databazaar.files import write_whole
    from databazaar.reports.figures import save_png
    from databazaar.reports.quality_figures import draw_quality
    from databazaar.runs.purchase import without_nan
    from databazaar.runs.trained import load

    trained = load(folder)
    frame = _read(trained, table)
    evaluation = trained.judge(frame, str(table))
    if len(evaluation.y) < len(frame):
        missing = len(frame) - len(evaluation.y)
        _note(f"{table}: {missing:,} of {len(frame):,} rows have no {trained.card.target!r} and are left out")
    place = folder / "evaluation" if out is None else out
    metrics, intervals, rows = evaluation.metrics, evaluation.intervals, len(evaluation.y)
    about = {"table": str(table), "model_hash": trained.card.model_hash, "rows": rows}
    told = without_nan({**about, "metrics": metrics, "intervals_95": intervals})
    within = folder if out is None else None
    write_whole(place / "metrics.json", json.dumps(told, indent=2).encode(), within=within)
    figures = save_png(draw_quality(evaluation), place, within)
    if as_json:
        typer.echo(json.dumps(told))
        return
    say(f"{rows:,} rows of {table}")
    for name, value in metrics.items():
        say(f"  {WORDS[name]:<12} {_line(name, value, intervals[name])}")
    for path in figures:
        say(path)


def _line(name: str, value: float, ends: tuple[float, float]) -> str:
    if not math.isfinite(value):
        return f"–  ({UNDEFINED.get(name, 'the answers are not finite')})"
    low, high = ends
    return f"{value:.4g}" + (f"  (95 %: {low:.4g} … {high:.4g})" if math.isfinite(low) else "")


def export(
    folder: From,
    out: Annotated[
        Path | None, typer.Option(help="The file.  [default: RUN/model.onnx, or RUN/model.txt for trees]")
    ] = None,
) -> None:
    """Writes the bought model as ONNX, or trees as LightGBM's file. The preprocessing stays in schema.json."""
    from databazaar.models import OF_COLUMNS
    from databazaar.runs.trained import load

    trained = load(folder)
    if trained.card.form is not None and trained.card.form.kind in OF_COLUMNS:
        from databazaar.runs.lightgbm_file import export_lightgbm

        path, peer = folder / "model.txt" if out is None else out, "lightgbm"
        if path.suffix == ".onnx":
            raise BazaarError(
                f"trees are exported as LightGBM's file, and {path} is named as ONNX: give --out model.txt"
            )
        difference = export_lightgbm(trained, path)
    else:
        from databazaar.runs.onnx import export_onnx

        path, peer = folder / "model.onnx" if out is None else out, "onnxruntime"
        difference = export_onnx(trained, path)
    checked = (
        f"not checked, because {peer} is not installed"
        if difference is None
        else f"checked with {peer}: its answers are ours to within {difference:.1g}"
    )
    say(f"{path} is written; {checked}")
