"""Server-sent events, as a browser reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def parsed(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The name and the data of each event of a stream; comments, such as heartbeats, are none.

    >>> list(parsed([": ping", "", "event: state", "data: {", "data: }", "", "data: 1"]))
    [('state', '{\\n}')]
    """
    name, data = "message", list[str]()
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif not line:
            if data:
                yield name, "\n".join(data)
            name, data = "message", []
