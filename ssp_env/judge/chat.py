"""A client for OpenAI-compatible chat servers: vLLM, SGLang, llama.cpp, hosted ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, TypeVar

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from ssp_env.config import Settings
from ssp_env.errors import ConfigError, Fault, MissingExtra, ServiceError
from ssp_env.net import (
    FIRST_PAUSE,
    OVERLOADED,
    Client,
    asked_pause,
    by_proxy,
    check_key_name,
    check_url,
    http_client,
    read_key,
    run,
)

T = TypeVar("T")

Message = dict[str, str]
"""One message of a conversation: its ``role``, ``user`` or ``assistant``, and ``content``."""

CALLS = 4
"""Calls in all for a prompt, with growing pauses between them."""
TIMEOUT = 120.0
"""Seconds for one of them. All calls and pauses for a prompt end within ``(CALLS + 1) * TIMEOUT``
seconds, whatever pause the server asks for."""
AT_ONCE = 16
"""Most calls in flight at a time."""


class ChatConfig(Settings):
    """A model behind an OpenAI-compatible API, for judging, verifying and playing."""

    section: ClassVar[str] = "openai"

    base_url: str
    """Root of the API, such as ``http://127.0.0.1:8000/v1``; ``/chat/completions`` is appended."""
    model: str = Field(min_length=1)
    """Name of the model, as the server calls it."""
    api_key_env: str | None = None
    """*Name* of the environment variable with the API key; ``None`` if the server wants none."""
    max_tokens: PositiveInt | None = 512
    """Most tokens of a reply, thoughts included: a model that thinks needs some thousands.
    ``None``: not sent, for servers that want ``max_completion_tokens`` in ``extra_body``."""
    temperature: NonNegativeFloat | None = 0.0
    """Temperature of a judge or verifier. ``None``: not sent, for models that refuse it."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each call, such as ``{chat_template_kwargs: {enable_thinking: false}}``."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_url(f"{self.section}.base_url", self.base_url, "http://127.0.0.1:8000/v1")
        check_key_name(f"{self.section}.api_key_env", self.api_key_env)
        return self


class ChatClient(Client[Any]):
    """Sends prompts, several at a time over kept-alive connections.

    May be shared between threads. A pickled or copied client opens its own connections."""

    def __init__(self, config: ChatConfig, temperature: float | None = None) -> None:
        """``temperature``, where given, takes the place of the settings'."""
        try:
            # Imported here: settings are read without them.
            import httpx
            import openai
        except ImportError as error:
            raise MissingExtra("a model that is asked", "services") from error

        self.config = config
        chosen = config.temperature if temperature is None else temperature
        sent = {"max_tokens": config.max_tokens, "temperature": chosen}
        self._sent: dict[str, Any] = {
            name: value for name, value in sent.items() if value is not None
        }
        self._key = key = read_key(f"{config.section}.api_key_env", config.api_key_env)

        def connect() -> tuple[openai.AsyncOpenAI, asyncio.Semaphore]:
            limits = httpx.Limits(max_connections=AT_ONCE)
            # openai 3 takes clients of httpx as before, but its types name those of httpx2 alone.
            sending: Any = http_client(config.base_url, limits=limits)
            client = openai.AsyncOpenAI(
                base_url=config.base_url,
                api_key=key or "none",
                timeout=TIMEOUT,
                max_retries=0,  # it would wait for two minutes at a time, or not at all
                http_client=sending,
            )
            return client, asyncio.Semaphore(AT_ONCE)

        super().__init__((config, temperature), connect, lambda made: made[0].close())
        self.answered = 0
        """Prompts that have got a result, in all calls."""

    def ask(
        self,
        prompts: Sequence[str | Sequence[Message]],
        parse: Callable[[str], T],
        service: str,
        control: str | Sequence[Message] | None = None,
        may_be_cut: bool = False,
    ) -> list[T | ServiceError]:
        """Sends each prompt and parses the replies.

        Args:
            prompts: the text of one user message each, or a conversation to continue.
            parse: makes a result of a reply; raises ``ServiceError`` for one that has none.
            service: what errors call this service.
            control: a harmless prompt. It is sent where the server was there and a prompt got no
                result all the same: too slow, an error, a reply of no use. If this one gets a
                result, the text is to blame for its failure; if not, the service is. It is not
                needed for a prompt beside which others, of any call, got results: what they got
                through cannot be down, but may still be busy with that text.
            may_be_cut: a reply that the limit of tokens has cut off is one all the same.

        Returns one entry per prompt, in order: the result, or the error that outlasted its retries.
        """

        # Failures for which text or service may be to blame, until the control prompt is asked.
        doubtful: list[ServiceError] = []

        async def one(prompt: str | Sequence[Message]) -> T | ServiceError:
            client, gate = self.connected()
            async with gate:
                # Replies to others speak for the service only from here on, when this call begins.
                before = self.answered
                try:
                    result = parse(await self._reply(client, prompt, service, may_be_cut))
                except ServiceError as error:
                    # If others got results meanwhile, the service works, and the text is to blame.
                    if error.fault == "text" and self.answered == before:
                        doubtful.append(error)
                    return error
                self.answered += 1
                return result

        async def all_of_them() -> list[T | ServiceError]:
            results = await asyncio.gather(*map(one, prompts))
            if doubtful and (control is None or isinstance(await one(control), ServiceError)):
                for error in doubtful:
                    error.fault = "service"
            return results

        return run(all_of_them())

    def check(
        self, prompt: str | Sequence[Message], parse: Callable[[str], object], service: str
    ) -> None:
        """Asks once, before any game. Raises a ``ConfigError`` that names the setting to change for
        a key, model or parameter that the server refuses and for a reply that is cut off; the
        ``ServiceError`` itself for anything else that leaves ``parse`` without a result."""
        (result,) = self.ask([prompt], parse, service)
        if isinstance(result, ServiceError):
            change = _setting_to_change(self.config, result)
            if change is not None:
                raise ConfigError(*change) from result
            raise result

    async def _reply(
        self, client: Any, prompt: str | Sequence[Message], service: str, may_be_cut: bool
    ) -> str:
        """The text of one reply; the fault of an error is ``text`` unless the server was away."""
        import openai

        messages: Any = prompt
        if isinstance(prompt, str):
            messages = [{"role": "user", "content": prompt}]
        # The library's time-outs are for single reads, so calls and pauses have one together.
        longest = (CALLS + 1) * TIMEOUT
        fault: Fault = "text"
        cause: BaseException | None = None
        try:
            async with asyncio.timeout(longest) as deadline:
                reply = await self._patiently(client, messages, deadline.when() or 0.0)
            choice = reply.choices[0]
            text, ended = _written(choice.message.content), choice.finish_reason
            if ended == "length" and not may_be_cut:
                cause = _CutOff()
                what = "a reply that was cut off: raise openai.max_tokens, or let it think less"
            elif isinstance(text, str):
                return text
            else:
                what = f"a reply without text (finish_reason {ended})"
        except TimeoutError:
            what = f"no complete reply after {longest:g} s; restart it"
        except openai.APIStatusError as error:
            cause, what = error, f"HTTP {error.status_code}: {error.response.text!r}"
            if pause := _pause_of(error):
                what += f" (it asks to be left alone for {pause:g} s)"
            if error.status_code in OVERLOADED:
                fault = "service"
        except openai.APIConnectionError as error:
            cause, what = error, f"{error.message} ({error.__cause__!r})"
            if _is_refused(error):
                fault = "service"
        # A proxy's page, or JSON of another shape; the library does not check.
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            what = f"no chat completion ({error!r})"

        if self._key:  # some servers quote it
            what = what.replace(self._key, "...")
        where = f"{self.config.base_url}, model {self.config.model}"
        what = f"{where}: {what:.300}{by_proxy(self.config.base_url)}"
        raise ServiceError(service, what, fault=fault) from cause

    async def _patiently(self, client: Any, messages: Any, until: float) -> Any:
        """A completion, after as many calls as it takes. A pause that the server asks for is kept,
        unless it ends after ``until``, a time of the event loop."""
        import openai

        for number in range(CALLS):
            try:
                return await client.chat.completions.create(
                    model=self.config.model,
                    messages=messages,
                    extra_body=self.config.extra_body or None,
                    **self._sent,
                )
            except (openai.APIStatusError, openai.APIConnectionError) as error:
                # A connection that failed has no status, and is worth another call.
                status = getattr(error, "status_code", 503)
                # .25, .5 and 1 s, and up to a quarter more.
                pause = FIRST_PAUSE * 2**number * random.uniform(1, 1.25)
                pause = max(pause, _pause_of(error))
                late = asyncio.get_running_loop().time() + pause >= until
                if number == CALLS - 1 or late or not (status in OVERLOADED or status >= 500):
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")


class _CutOff(Exception):
    """The limit of tokens ended a reply."""


def _pause_of(error: Exception) -> float:
    return asked_pause(getattr(getattr(error, "response", None), "headers", {}))


def _written(content: Any) -> Any:
    """The text of a reply, which may come in parts, with thoughts as parts of another type."""
    if not isinstance(content, list):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text") or None


def _is_refused(error: Exception) -> bool:
    import httpx

    return isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)


def _setting_to_change(config: ChatConfig, error: ServiceError) -> tuple[str, object, str] | None:
    """The setting that a failed first call points at, its value, and what to do."""
    cause = error.__cause__
    if isinstance(cause, _CutOff):
        fix = "its reply to a short question is cut off, so it thinks: give more, such as 4096, or "
        fix += "openai.extra_body={chat_template_kwargs: {enable_thinking: false}}"
        return "openai.max_tokens", config.max_tokens, fix
    status = getattr(cause, "status_code", 0)
    said = str(getattr(getattr(cause, "response", None), "text", "")).lower()
    answer = f"({error.what})"
    if status in (401, 403) or (status == 400 and "api key" in said):
        fix = f"the server refuses this key: name the variable that holds a right one {answer}"
        return "openai.api_key_env", config.api_key_env, fix
    if status == 404:
        fix = f"the server has no such model at openai.base_url={config.base_url} {answer}"
        return "openai.model", config.model, fix
    if status not in (400, 422):
        return None
    if name := next((name for name in config.extra_body if name.lower() in said), None):
        return f"openai.extra_body.{name}", config.extra_body[name], f"leave it out {answer}"
    if config.max_tokens is not None and ("max_" in said or "context length" in said):
        fix = "the server refuses max_tokens: set openai.max_tokens=null and "
        fix += f"openai.extra_body={{max_completion_tokens: 4096}}, or give fewer {answer}"
        return "openai.max_tokens", config.max_tokens, fix
    if "temperature" in said:
        fix = f"the server refuses it: set openai.temperature=null {answer}"
        return "openai.temperature", config.temperature, fix
    return None
