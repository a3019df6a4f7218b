"""Plain functions as providers.

```python
@providers.call("rank", "rank_snapshot", timeout=5.0)
def fetch_rank(keyword: str) -> int:
    answer = requests.get(URL, params={"q": keyword}, timeout=providers.current_call().remaining)
    answer.raise_for_status()
    return answer.json()["position"]


with providers.calling(tenant_id=tenant):
    fetch_rank("tea")
```

A function is an operation of a provider that is known by its names like any other. The payload is its arguments by
name, and the answer holds what it returned.
"""

import asyncio
import inspect
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, Protocol, TypeVar
from uuid import UUID

import structlog
from asgiref.sync import async_to_sync, sync_to_async

from providers import registry
from providers.active_policy import ATTRIBUTES
from providers.base import ProviderBase
from providers.circumstances import CurrentCall, attempting, circumstances, nearer
from providers.core import values
from providers.core.breaker import BreakerPolicy
from providers.core.errors import (
    ProviderBadRequestError,
    ProviderError,
    ProviderInternalError,
    ProviderResponseFormatError,
    ProviderUsageError,
    canonical,
)
from providers.core.exchange import ProviderExecutionContext, ProviderExecutionResult
from providers.core.policy import ProviderPolicy
from providers.core.request import Request, refuse_mistakes, tenant_in, text_of
from providers.core.retry import RetryPolicy

log = structlog.get_logger("ergon.providers")

P = ParamSpec("P")
T = TypeVar("T")
Errors = Mapping[type[Exception], type[ProviderError]]

_DEFAULTS = ProviderPolicy()
ADDRESS = re.compile(r" at 0x[0-9a-f]+>")
VALUE, NOT_KEPT = "value", "not_kept"


class Decorator(Protocol):
    def __call__(self, function: Callable[P, T], /) -> Callable[P, T]: ...


def call(  # noqa: PLR0913 (each has a default, and is given by its name)
    provider_name: str,
    capability: str,
    *,
    timeout: float | None = _DEFAULTS.timeout,
    retry: RetryPolicy = _DEFAULTS.retry,
    breaker: BreakerPolicy = _DEFAULTS.breaker,
    operation: str | None = None,
    version: int = 1,
    tenant_id: str | UUID | None = None,
    errors: Errors | None = None,
    idempotency_fields: Sequence[str] | None = None,
    dump: Callable[[Any], Any] | None = None,
    load: Callable[[Any], Any] | None = None,
    fallback: Callable[..., Any] | None = None,
    **policy: Any,
) -> Decorator:
    """Call a function, or a coroutine function, under a policy: it returns what it returns, or raises a ProviderError.

    `operation` is the name of the function if none is given. `tenant_id` is that of calls outside of any block that
    names one; without it they are refused. `errors` says what the exceptions of a library mean. `idempotency_fields`
    are the arguments that make two calls the same request: all, if it is not given. `dump` and `load` turn an answer
    that is to be given again into values of plain kinds, and back. `fallback` answers for a call that has failed for
    good: it takes the error and then what the function takes, and raises to let the call fail. `policy` holds the other
    fields of `ProviderPolicy`.
    """
    terms = ProviderPolicy(timeout=timeout, retry=retry, breaker=breaker, **policy), version

    def decorate(function: Callable[P, T], /) -> Callable[P, T]:
        name = getattr(function, "__name__", "") if operation is None else operation
        refuse_mistakes({"provider_name": provider_name, "capability": capability, "operation": name})
        described = Function(
            function,
            inspect.signature(function),
            name,
            tenant_in(tenant_id),
            errors or {},
            idempotency_fields,
            dump or (lambda value: value),
            load or (lambda kept: kept),
            fallback,
        )
        described.refuse_mistakes()
        provider = _provider_of((provider_name, capability), terms, described)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> Any:
            return described.value_in(provider.execute(**described.request(args, kwargs)))

        @wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            return described.value_in(await provider.aexecute(**described.request(args, kwargs)))

        return awaited if described.is_async else called  # type: ignore[return-value]

    return decorate


@dataclass(frozen=True, slots=True)
class Function:
    """A function that is decorated, and what its decorator says of it."""

    run: Callable[..., Any]
    signature: inspect.Signature
    operation: str
    tenant_id: str | None
    errors: Errors
    idempotency_fields: Sequence[str] | None
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]
    fallback: Callable[..., Any] | None

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.run)

    @property
    def place(self) -> str:
        return f"{self.run.__module__}.{getattr(self.run, '__qualname__', self.operation)}"

    def refuse_mistakes(self) -> None:
        if inspect.isgeneratorfunction(self.run) or inspect.isasyncgenfunction(self.run):
            msg = f"{self.place} is a generator, which runs after its call has ended: return a list"
            raise ProviderUsageError(msg)
        unknown = set(self.idempotency_fields or ()) - set(self.signature.parameters)
        if unknown:
            msg = f"idempotency_fields of {self.place} are no arguments of it: {', '.join(sorted(unknown))}"
            raise ProviderUsageError(msg)
        if self.fallback is not None:
            self._refuse_other_arguments(self.fallback)

    def _refuse_other_arguments(self, fallback: Callable[..., Any]) -> None:
        parameters = self.signature.parameters.values()
        by_name = {one.name: None for one in parameters if one.kind is one.KEYWORD_ONLY}
        in_order = [one.name for one in parameters if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]
        try:
            inspect.signature(fallback).bind("error", *in_order, **by_name)
        except TypeError:
            msg = f"fallback of {self.place} must take (error, {', '.join([*in_order, *by_name])})"
            raise ProviderUsageError(msg) from None

    def request(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """What `execute` is given for a call with these arguments. Those with a default are part of the request."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        about = circumstances()
        tenant_id = self.tenant_id if about.tenant_id is None else about.tenant_id
        if tenant_id is None:
            msg = (
                f"{self.place} was called for no tenant: call it inside `with providers.calling(tenant_id=…)`,"
                " or give its decorator the tenant_id of all calls that name none"
            )
            raise ProviderUsageError(msg)
        return {
            "tenant_id": tenant_id,
            "campaign_id": about.campaign_id,
            "operation": self.operation,
            "payload": dict(bound.arguments),
            "context": about.context(),
        }

    def arguments(self, payload: Mapping[str, Any], *, is_guarded: bool) -> inspect.BoundArguments:
        """The arguments that a payload holds, as the function is called with them."""
        bound = self.signature.bind_partial()
        bound.arguments.update(payload)
        bound.apply_defaults()
        names = self.signature.parameters.keys()
        if not payload.keys() <= names or bound.arguments.keys() != names:
            msg = f"{self.operation} takes ({', '.join(names)}), not ({', '.join(map(text_of, payload))})"
            raise ProviderBadRequestError(msg, never_left=True)
        counted = names if self.idempotency_fields is None else self.idempotency_fields
        unequal = [name for name in counted if _is_no_data(bound.arguments[name])] if is_guarded else []
        if unequal:
            msg = (
                f"no two calls of {self.operation} would be the same request, since {', '.join(unequal)} is no data:"
                " name the arguments that count in idempotency_fields"
            )
            raise ProviderInternalError(msg, never_left=True)
        return bound

    def answer(self, value: Any, *, is_guarded: bool) -> "Returned":
        """What the function returned, also in the form in which it can be kept."""
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            msg = f"{self.operation} returned something to be awaited: decorate a coroutine function"
            raise ProviderInternalError(msg)
        try:
            return Returned({VALUE: values.dumped(self.dump(value))}, value)
        except Exception as error:  # noqa: BLE001 (`dump` may raise anything, and a success is never thrown away)
            reason = str(error) if isinstance(error, values.NotKeptError) else f"dump raised {type(error).__name__}"
            if is_guarded:
                log.warning("provider answer cannot be given again", operation=self.operation, reason=reason)
            return Returned({NOT_KEPT: reason}, value)

    def value_in(self, result: ProviderExecutionResult) -> Any:
        """What the function returned, now or when the same request was made before."""
        result.raise_for_failure()
        kept = result.payload or {}
        if isinstance(kept, Returned):
            return kept.value
        if NOT_KEPT in kept:
            msg = f"the request has succeeded before, and its answer cannot be given again: {kept[NOT_KEPT]}"
            raise ProviderResponseFormatError(msg, never_left=True)
        try:
            return self.load(values.loaded(kept[VALUE]))
        except Exception as error:
            msg = f"the request has succeeded before, and its answer cannot be read: load raised {type(error).__name__}"
            raise ProviderResponseFormatError(msg, never_left=True) from error

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Around an attempt: what the exceptions of a library mean."""
        try:
            yield
        except ProviderError:
            raise
        except tuple(self.errors) as error:
            kind = next(kind for foreign, kind in self.errors.items() if isinstance(error, foreign))
            found = canonical(error)
            raise kind(found.message, http_status=found.http_status, never_left=found.never_left) from error


class Returned(dict[str, Any]):
    """The answer of a function as it is kept, and the value itself for who has waited for it."""

    def __init__(self, kept: Mapping[str, Any], value: Any) -> None:
        super().__init__(kept)
        self.value = value


class FunctionProvider(ProviderBase):
    """The functions that are decorated with the same names. Each is an operation."""

    terms: tuple[ProviderPolicy, int]

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}

    def add(self, function: Function) -> None:
        """Take a function as an operation. The same one, defined again, replaces itself."""
        earlier = self.functions.get(function.operation)
        if earlier is not None and earlier.place != function.place:
            names = f"{self.provider_name}/{self.capability}"
            msg = f"{names} has an operation {function.operation!r} already, {earlier.place}: name this one otherwise"
            raise ProviderUsageError(msg)
        self.functions[function.operation] = function

    @property
    def idempotency_fields(self) -> Mapping[str, Sequence[str]]:  # type: ignore[override]
        named = ((name, function.idempotency_fields) for name, function in self.functions.items())
        return {name: fields for name, fields in named if fields is not None}

    def _execute_impl(self, **asked: Any) -> dict[str, Any]:
        function, bound, current = self._begun(**asked)
        if function.is_async:
            return async_to_sync(self._awaited)(**asked)
        with attempting(current), function.translating():
            value = function.run(*bound.args, **bound.kwargs)
        return function.answer(value, is_guarded=current.idempotency_key is not None)

    async def _aexecute_impl(self, **asked: Any) -> dict[str, Any]:
        function, bound, current = self._begun(**asked)
        if not function.is_async:
            return await sync_to_async(self._execute_impl, thread_sensitive=False)(**asked)
        with attempting(current), function.translating():
            value = await function.run(*bound.args, **bound.kwargs)
        return function.answer(value, is_guarded=current.idempotency_key is not None)

    async def _awaited(self, *, context: ProviderExecutionContext, **asked: Any) -> dict[str, Any]:
        """For callers in threads, who do not bound coroutines."""
        async with asyncio.timeout(context.timeout):
            return await self._aexecute_impl(context=context, **asked)

    def _has_fallback(self, operation: str) -> bool:
        function = self.functions.get(operation)
        return function is not None and function.fallback is not None

    def fallback(self, request: Request, error: ProviderError) -> dict[str, Any] | None:
        function, run, bound = self._falling_back(request)
        if inspect.iscoroutinefunction(run):
            return async_to_sync(self.afallback)(request, error)
        try:
            return function.answer(run(error, *bound.args, **bound.kwargs), is_guarded=False)
        except ProviderError as raised:
            if raised is not error:
                raise
            return None

    async def afallback(self, request: Request, error: ProviderError) -> dict[str, Any] | None:
        function, run, bound = self._falling_back(request)
        if not inspect.iscoroutinefunction(run):
            return await sync_to_async(self.fallback, thread_sensitive=False)(request, error)
        try:
            return function.answer(await run(error, *bound.args, **bound.kwargs), is_guarded=False)
        except ProviderError as raised:
            if raised is not error:
                raise
            return None

    def _falling_back(self, request: Request) -> tuple[Function, Any, inspect.BoundArguments]:
        function = self.functions[request.operation]
        return function, function.fallback, function.arguments(request.payload, is_guarded=False)

    def _begun(
        self,
        *,
        tenant_id: str,
        campaign_id: str | None,
        operation: str,
        payload: dict[str, Any],
        context: ProviderExecutionContext,
    ) -> tuple[Function, inspect.BoundArguments, CurrentCall]:
        function = self.functions.get(operation)
        if function is None:
            msg = f"there is no operation {operation!r}; there are: {', '.join(self.functions)}"
            raise ProviderBadRequestError(msg, never_left=True)
        limit = None if context.timeout is None else time.monotonic() + context.timeout
        current = CurrentCall(
            tenant_id=tenant_id,
            campaign_id=campaign_id,
            correlation_id=context.correlation_id,
            idempotency_key=context.idempotency_key,
            attempt=context.attempt,
            ends_at=nearer(limit, context.deadline),
        )
        return function, function.arguments(payload, is_guarded=context.idempotency_key is not None), current


_providers: dict[registry.Names, FunctionProvider] = {}
_lock = Lock()


def _provider_of(names: registry.Names, terms: tuple[ProviderPolicy, int], function: Function) -> FunctionProvider:
    """The provider of these names, with the function among its operations."""
    with _lock:
        found = _providers.get(names)
        others = [] if found is None else [one for one in found.functions.values() if one.place != function.place]
        if found is not None and found.terms != terms and others:
            msg = (
                f"{'/'.join(names)} is called under another policy or version in {others[0].place}:"
                " use one decorator for both functions"
            )
            raise ProviderUsageError(msg)
        if found is None or found.terms != terms:
            policy, version = terms
            attributes = {attribute: getattr(policy, field) for field, attribute in ATTRIBUTES.items()}
            about = {"provider_name": names[0], "capability": names[1], "version": version, "terms": terms}
            kind = type(function.operation, (FunctionProvider,), {**attributes, **about})
            kind.__module__ = function.run.__module__
            _providers[names] = found = registry.register(kind())
        found.add(function)
        return found


def _is_no_data(value: Any) -> bool:
    """Whether a value is known by its address in memory, or holds one that is."""
    return not isinstance(value, str) and ADDRESS.search(text_of(value)) is not None
