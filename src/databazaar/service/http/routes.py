"""Routes, each declared once. A resource (a module of `resources`) has one `Routes`, and decorates plain functions:

- `read` and `listing` give an object, or a part of a list, as JSON under /v1;
- `write` makes a command: what it takes beside the ids in its path is a JSON body; it is done once for a key;
- `form` lets people send the same command from a page: what they typed is read into the same arguments;
- `page` shows something to people, and may stand in the menu.

A function takes what it names: `call`, `page`, `session`, `caller` and `settings` of the request; its other arguments
come from the path, the query or the body. So a command of the service that needs no more than that is declared as it
is: `routes.write("/jobs/{job_id}/withdraw", shapes.Job)(jobs.withdraw)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature
from typing import Annotated, Any, Generic, TypeVar

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field, create_model
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from databazaar.service.errors import InvalidError
from databazaar.service.http.calls import ApiCall, Reading, Sending, Writing, shown
from databazaar.service.http.context import Call
from databazaar.service.http.forms import Form
from databazaar.service.http.pages import InPage, MenuItem, PageContext, Posted, require
from databazaar.service.http.security_limits import takes_uploads
from databazaar.service.settings import Settings

Item = TypeVar("Item")
Command = TypeVar("Command", bound=Callable[..., Any])
After = Annotated[str | None, Query(max_length=64, description="The `next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=500, description="How many at the most.")]
GIVEN = ("call", "page", "session", "caller", "settings")


class Refusal(BaseModel):
    error: str = Field(description="One sentence, with the remedy.")
    code: str = Field(description="The kind of refusal, for programs.")


REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"model": Refusal, "description": "Nobody known asks."},
    403: {"model": Refusal, "description": "The caller may not do this."},
    404: {"model": Refusal, "description": "There is no such thing, or it is another organisation's."},
    409: {"model": Refusal, "description": "It cannot be done in the state that it is in."},
    422: {"model": Refusal, "description": "What was sent is not what is asked for."},
    429: {"model": Refusal, "description": "Too many requests."},
}


class Body(BaseModel):
    """The body of a request: nothing that it does not know."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Page(BaseModel, Generic[Item]):
    """A part of a list; `next` is None at its end."""

    items: list[Item]
    next: str | None = None


def paged(shape: Any, rows: Sequence[Any], after: str | None, limit: int, cursor: str = "id") -> Page[Any]:
    """The rows after the one that `after` names, in the order that they have.

    >>> from databazaar.client.shapes import Account
    >>> rows = [Account(name=name, balance=0) for name in "abc"]
    >>> found = paged(Account, rows, None, 2, "name")
    >>> len(found.items), found.next, paged(Account, rows, "b", 2, "name").next
    (2, 'b', None)
    """
    begin = 0
    if after is not None:
        places = [place for place, row in enumerate(rows) if str(getattr(row, cursor)) == after]
        if not places:
            raise InvalidError("`after` names nothing in this list: take the `next` of the page before")
        begin = places[0] + 1
    part = rows[begin : begin + limit]
    more = begin + limit < len(rows)
    return Page[Any](items=[shown(shape, row) for row in part], next=str(getattr(part[-1], cursor)) if more else None)


class HtmlPage:
    """A page by its declaration. `show` makes it anew with a form that had a mistake in it."""

    def __init__(self, function: Callable[..., Any], path: str, template: str, title: str, role: str) -> None:
        self.function, self.path, self.template, self.title, self.role = function, path, template, title, role
        self.forms: list[str] = []
        self.takes = frozenset(inspect.signature(function).parameters)

    def show(
        self, page: PageContext, status: int = 200, forms: Mapping[str, Form] | None = None, **ids: Any
    ) -> Response:
        require(page.caller, self.role)
        with page.read() as session:
            found = _done(self.function, page, session, {name: one for name, one in ids.items() if name in self.takes})
            if isinstance(found, Response):
                return found
            given = {"title": self.title, **{name: Form() for name in self.forms}, **found, **(forms or {})}
            return page.render(self.template, status=status, **given)


class Routes:
    """What a resource has under /v1 (`api`), for browsers (`pages`), and in the menu. `tag` names it in the API's
    description."""

    def __init__(self, tag: str = "") -> None:
        self.api = APIRouter(prefix="/v1", tags=[tag], responses=REFUSALS)
        self.pages = APIRouter(include_in_schema=False)
        self.menu: list[MenuItem] = []

    def read(self, path: str, shape: Any = None, **more: Any) -> Callable[[Command], Command]:
        """GET of one object in this shape, or of whatever response the function makes."""

        def declare(function: Command) -> Command:
            def answer(call: ApiCall, **given: Any) -> Any:
                with call.read() as session:
                    found = _done(function, call, session, given)
                    return found if shape is None else shown(shape, found)

            self.api.get(path, response_model=shape, **more)(_endpoint(function, answer, call=Reading))
            return function

        return declare

    def listing(self, path: str, shape: Any, cursor: str = "id") -> Callable[[Command], Command]:
        """GET of a list of such objects, in parts; `cursor` is what tells them apart."""

        def declare(function: Command) -> Command:
            def answer(call: ApiCall, after: str | None, limit: int, **given: Any) -> Any:
                with call.read() as session:
                    return paged(shape, _done(function, call, session, given), after, limit, cursor)

            made = _endpoint(function, answer, call=Reading, after=(After, None), limit=(Limit, 100))
            self.api.get(path, response_model=Page[shape])(made)
            return function

        return declare

    def write(
        self,
        path: str,
        shape: Any,
        status: int = 200,
        *,
        method: str = "POST",
        late: bool = False,
        uploads: bool = False,
        **more: Any,
    ) -> Callable[[Command], Command]:
        """A command, for programs: see `ApiCall.do` for `late`. With `uploads` it takes a form with files
        instead of JSON."""

        def declare(function: Command) -> Command:
            def answer(call: ApiCall, asked: Body | None = None, **given: Any) -> Response:
                taken = {} if asked is None else {name: getattr(asked, name) for name in type(asked).model_fields}
                command = lambda session: _done(function, call, session, {**given, **taken})  # noqa: E731
                return call.do(shape, command, status, late=late)

            body = _body_of(function, path)
            taken = {} if body is None else {"asked": body}
            made = _endpoint(function, answer, path, call=Sending if uploads else Writing, **taken)
            made = takes_uploads(made) if uploads else made
            self.api.add_api_route(path, made, methods=[method], response_model=shape, status_code=status, **more)
            return function

        return declare

    def page(
        self,
        path: str,
        template: str,
        title: str = "",
        *,
        role: str = "",
        menu: tuple[str, int] | None = None,
        listed_for: str = "",
    ) -> Callable[[Callable[..., Any]], HtmlPage]:
        """A page for those who have the role. The function gives what the template shows; `title` may be among it.
        `menu` is the group and the place in the menu, where it is listed for this role or for `listed_for`. Forms that
        name the page are among what its template shows."""

        def declare(function: Callable[..., Any]) -> HtmlPage:
            made = HtmlPage(function, path, template, title, role)
            self.pages.get(path)(_endpoint(function, made.show, page=InPage))
            if menu is not None:
                self.menu.append(MenuItem(menu[0], title, menu[1], path, listed_for or role))
            return made

        return declare

    def form(
        self,
        path: str,
        told: str | Callable[[PageContext, Any], str | tuple[str, str]],
        back: str = "",
        *,
        role: str = "",
        page: HtmlPage | None = None,
        name: str = "form",
        read: Callable[[PageContext, Form], dict[str, Any]] | None = None,
        fields: Mapping[str, str] | None = None,
        check: Callable[[Session, Settings, Any], object] | None = None,
        uploads: bool = False,
        secret: str = "",
        kind: str = "good",
    ) -> Callable[[Command], Command]:
        """The same command, from a form: `read` gives its keyword arguments, and `check` may refuse what it has `made`.

        It leads on to `back`, else to its page, where `told` is said; both may name `made`, and `secret` which part of
        it is shown once. With a mistake in it the form is shown again as `name` on its `page`, each fault at its field
        (`fields`: see `Form.trying`). Without a page it is a button, and a refusal is told where it leads back to.
        """
        if page is not None:
            page.forms.append(name)
            back, role = back or page.path, role or page.role

        def declare(function: Command) -> Command:
            def answer(page_: PageContext, posted: FormData, **given: Any) -> Response:
                require(page_.caller, role)
                page_, form, made = replace(page_, posted=posted), Form(posted), None
                taken = {} if read is None else read(page_, form)
                with form.trying(fields):
                    if not form.faulty:
                        with page_.begin() as session:
                            made = _done(function, page_, session, {**given, **taken})
                            if check is not None:
                                check(session, page_.settings, made)
                if form.faulty and page is not None:
                    return page.show(page_, 422, {name: form}, **given)
                target = form.back or back.format(made=made, **given)
                if form.faulty:
                    return page_.see(target, form.refused or next(iter(form.faults.values())), kind="bad")
                page_.committed()
                words = told.format(made=made) if isinstance(told, str) else told(page_, made)
                text, look = (words, kind) if isinstance(words, str) else words
                return page_.see(target, text, kind=look, secret=getattr(made, secret) if secret else "")

            made = _endpoint(function, answer, path, page_=InPage, posted=Posted)
            self.pages.post(path)(takes_uploads(made) if uploads else made)
            return function

        return declare


def _done(function: Callable[..., Any], call: Call, session: Session, given: dict[str, Any]) -> Any:
    """Calls the function with what it names of the request, and with what was given."""
    known = {"call": call, "page": call, "session": session, "caller": call.caller, "settings": call.settings}
    named = inspect.signature(function).parameters
    return function(**{name: value for name, value in known.items() if name in named}, **given)


def _endpoint(
    function: Callable[..., Any], answer: Callable[..., Any], path: str = "", **more: Any
) -> Callable[..., Any]:
    """What FastAPI calls: `answer`, with the function's arguments (where `path` is given, those in it alone), and
    `more` by type (and default). It is named and described as the function is."""

    def endpoint(**given: Any) -> Any:
        return answer(**given)

    own = [one for one in _arguments(function) if not path or f"{{{one.name}}}" in path]
    parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own]
    for name, said in more.items():
        kind, default = said if isinstance(said, tuple) else (said, Parameter.empty)
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default))
    endpoint.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    endpoint.__name__, endpoint.__doc__ = function.__name__, function.__doc__
    return endpoint


def _arguments(function: Callable[..., Any]) -> list[Parameter]:
    """What a request must bring; the rest the hub knows itself."""
    known = inspect.signature(function, eval_str=True).parameters.values()
    return [one for one in known if one.name not in GIVEN]


def _body_of(function: Callable[..., Any], path: str) -> Any:
    """A model of what a command takes beside the ids in its path; None where it takes nothing."""
    fields: dict[str, Any] = {
        one.name: (one.annotation, ... if one.default is Parameter.empty else one.default)
        for one in _arguments(function)
        if f"{{{one.name}}}" not in path
    }
    return create_model(function.__name__.title().replace("_", ""), __base__=Body, **fields) if fields else None
