"""Writes docs/reference/http-api.md from the hub's OpenAPI: python scripts/api_reference.py"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from databazaar.service.database.connection import Database
from databazaar.service.http.app import create_app
from databazaar.service.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "http-api.md"
TOP = """\
# The HTTP interface

This page is made from the hub's OpenAPI, which a hub serves itself at `/v1/openapi.json`, by
`python scripts/api_reference.py`. `databazaar.client` has a method for each of these, and `bazaar jobs` what a consumer
needs in a shell.

- **GET reads, POST does, DELETE deletes.** Bodies and answers are JSON. Amounts are whole numbers in minor units of the
  market's one currency; moments are in UTC.
- **Who asks.** A program sends `Authorization: Bearer TOKEN`. Tokens are made on the hub's page Account, have scopes
  (`read`, `jobs`, `offers`, `money`, `operate`), expire and can be revoked. What is another organisation's is 404.
- **Once.** With an `Idempotency-Key` (8 to 100 visible characters, new for each new request) a POST or a DELETE is done
  once: sent again by the same token with the same body within a week, it gets the same answer, refusals included, with
  `Idempotency-Replayed: true`. With another body it is 422. A duplicate that comes while the first is under way waits
  for it. Answers are kept encrypted under the token that asked. What an own arbiter sends is its own
  key: its entries and questions take no other, and do nothing twice.
- **Refusals** are `{"error": "one sentence with its remedy", "code": "…"}`: 401 `unknown_caller`, 403 `denied`, 404
  `missing`, 409 `conflict`, 413 `too_large`, 422 `invalid`, 429 `too_many` with `Retry-After`, 503 `unavailable`.
- **Lists** come in pages: `{"items": […], "next": …}`; ask again with `after` (`before`, for the journal and the
  statement) until `next` is null.
- **Live.** `/v1/jobs/{job_id}/live` is a stream of server-sent events: `rounds`, whose id is the last round's number,
  and `state`. `Last-Event-ID` goes on after that round. It ends when the job is over (afterwards: 204), and when the
  token holds no longer.
- `/metrics` wants a token of the operator's organisation, with the scope `read`; `/healthz` answers anybody, with 503
  where something is wrong.
"""
WALK = """\
ask() { curl --silent --show-error --fail-with-body --header @<(echo "Authorization: Bearer $1") "${@:2}"; }
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
once() { echo "Idempotency-Key: $(python3 -c 'import uuid; print(uuid.uuid4())')"; }

# a provider uploads a table and offers it, at 5 cents an access
FILE=$(ask "$PROVIDER" --form file=@table.csv "$HUB/v1/files" | field id)
OFFER=$(ask "$PROVIDER" --json "{\\"name\\": \\"Walks\\", \\"slug\\": \\"walks\\", \\"file_id\\": \\"$FILE\\",
  \\"policy\\": {\\"price\\": 5, \\"approval\\": \\"automatic\\"}}" "$HUB/v1/offers" | field slug)

# a consumer sees columns and price, makes a job of a market.toml that names the offer, and asks its provider
ask "$CONSUMER" "$HUB/v1/offers/$OFFER"
JOB=$(ask "$CONSUMER" --form 'market=<market.toml' --form file=@holdout.csv "$HUB/v1/jobs/from-market" | field id)
ask "$CONSUMER" --request POST "$HUB/v1/jobs/$JOB/submit" | field state

# it looks at what that will cost, deposits as much, which the operator confirms, and funds the job
ESCROW=$(ask "$CONSUMER" "$HUB/v1/jobs/$JOB/quote" | field escrow)
ask "$CONSUMER" --header "$(once)" --json "{\\"amount\\": $ESCROW}" "$HUB/v1/deposits"
ask "$CONSUMER" --header "$(once)" --request POST "$HUB/v1/jobs/$JOB/fund" | field state

# it follows the job until that is over, and takes what it has bought
ask "$CONSUMER" --no-buffer "$HUB/v1/jobs/$JOB/live"
ask "$CONSUMER" "$HUB/v1/jobs/$JOB" | field reason
ask "$CONSUMER" --output model.zip "$HUB/v1/jobs/$JOB/model"
ask "$CONSUMER" --output statement.csv "$HUB/v1/jobs/$JOB/statement.csv"

# the provider keeps its receipt and the hub's key, which check it without the hub
ask "$PROVIDER" "$HUB/v1/receipts?limit=1" | field items
ask "$PROVIDER" --output hub-key.json "$HUB/v1/key"
"""
AROUND = """\
## From a shell, with curl

With a token of a provider (`read`, `offers`) and one of a consumer (`read`, `jobs`, `money`), both made under Account:

    export HUB=http://127.0.0.1:8000 PROVIDER=… CONSUMER=…

In this folder lie the provider's `table.csv`, the consumer's `holdout.csv`, and its `market.toml`, whose one provider
is `id = "NORTH-walks"`: the provider's short name, and the offer's. Amounts are in cents. `bazaar jobs` does the same
with less to write.

```bash
"""
HIDDEN = {"Idempotency-Key", "after", "before", "limit"}
"""Parameters that the top of the page explains."""


def specification() -> dict[str, Any]:
    """The hub's OpenAPI; nothing is asked of the database."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(Path(folder))
        database = Database(settings.database_url)
        found: dict[str, Any] = create_app(settings, database, supervise=False).openapi()
        database.dispose()
    return found


def reference() -> str:
    found = specification()
    by_tag: dict[str, list[str]] = {}
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            told = _operation(f"{method.upper()} {path}", operation)
            by_tag.setdefault(operation["tags"][0], []).append(told)
    parts = [
        TOP,
        f"{AROUND}{WALK}```\n",
        *(f"## {tag.capitalize()}\n\n" + "\n".join(told) for tag, told in by_tag.items()),
    ]
    schemas = [_schema(name, schema) for name, schema in sorted(found["components"]["schemas"].items())]
    return "\n".join([*parts, "## Objects\n", *(told for told in schemas if told)]).rstrip() + "\n"


def _operation(title: str, operation: dict[str, Any]) -> str:
    lines = [f"### `{title}`\n", _on_one_line(operation["description"]), ""]
    parameters = [one for one in operation.get("parameters", []) if one["name"] not in HIDDEN and one["in"] != "path"]
    lines += [f"- `{one['name']}` ({one['in']}): {one.get('description', _kind(one['schema']))}" for one in parameters]
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        what = _kind(body["schema"]) if "$ref" in body["schema"] else _fields(body["schema"])
        lines.append(f"- sends {what}" if kind == "application/json" else f"- sends {kind}: {what}")
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            lines += [f"- {status}: {_answer(kind, one)}" for kind, one in answer.get("content", {}).items()]
    return "\n".join(lines) + "\n"


def _answer(kind: str, answer: dict[str, Any]) -> str:
    schema = answer.get("schema", {})
    return _kind(schema) if kind == "application/json" and schema else f"`{kind}`"


def _fields(schema: dict[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in schema.get("properties", {}))


def _kind(schema: dict[str, Any]) -> str:
    """A type in words; an object by the name under which it stands below."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        inner = name.removeprefix("Page_").removesuffix("_")
        return f"a page of [{inner}](#{inner.lower()})" if inner != name else f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}" if "items" in schema else "list"
    return str(schema.get("format") or schema.get("type") or "anything")


def _schema(name: str, schema: dict[str, Any]) -> str:
    if name.startswith("Page_") or "properties" not in schema:
        return ""
    lines = [f"### {name}\n"]
    if schema.get("description"):
        lines += [_on_one_line(schema["description"]), ""]
    needed = set(schema.get("required", ()))
    lines += ["| field | type | |", "|---|---|---|"]
    for field, one in schema["properties"].items():
        default = "" if field in needed else f"default `{_written(one['default'])}`" if "default" in one else "optional"
        told = "; ".join(part for part in (_on_one_line(one.get("description", "")).rstrip("."), default) if part)
        lines.append(f"| `{field}` | {_kind(one)} | {told} |")
    return "\n".join(lines) + "\n"


def _written(value: object) -> str:
    return {"None": "null", "True": "true", "False": "false", "": '""'}.get(str(value), str(value))


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
    print(PAGE)  # noqa: T201
