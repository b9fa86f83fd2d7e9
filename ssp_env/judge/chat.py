"""A client for OpenAI-compatible chat servers: vLLM, SGLang, llama.cpp, hosted ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self, TypeVar

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssp_env.config import Settings
from ssp_env.errors import MissingExtra, ServiceError
from ssp_env.net import OVERLOADED, Connections, check_key_name, check_url, read_key, run

T = TypeVar("T")

_MAX_TOKENS = 512
"""Most tokens of a reply."""
_LONGEST_PAUSE = 60.0
"""Seconds that the library waits at most when a server asks for patience."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: str
    """``user`` or ``assistant``."""
    content: str


class ChatConfig(Settings):
    """Address of a model and how it is called."""

    section: ClassVar[str] = "chat"

    base_url: str
    """Root of the API, such as ``http://127.0.0.1:8000/v1``; ``/chat/completions`` is appended."""
    model: str = Field(min_length=1)
    """Name of the model, as the server calls it."""
    api_key_env: str | None = None
    """*Name* of the environment variable with the API key; ``None`` if the server wants none."""
    timeout: PositiveFloat = 60.0
    """Seconds for one call, from connecting to the last byte of the reply."""
    attempts: PositiveInt = 4
    """Calls in all for a prompt, with growing pauses between them."""

    concurrency: PositiveInt = 16
    """Most calls in flight at a time."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_url(f"{self.section}.base_url", self.base_url, "http://127.0.0.1:8000/v1")
        check_key_name(f"{self.section}.api_key_env", self.api_key_env)
        return self


class ChatClient:
    """Sends prompts, several at a time over kept-alive connections, at temperature 0.

    May be shared between threads. A pickled or copied client opens its own connections.
    """

    def __init__(self, config: ChatConfig) -> None:
        """
        Raises:
            ConfigError: the environment variable for the key is not set.
            MissingExtra: the package openai is not installed.
        """
        try:
            # Imported here: settings are read without them.
            import httpx
            import openai
        except ImportError as error:
            raise MissingExtra(
                "a model that is asked", "pip install '.[chat]' in the checkout"
            ) from error

        self.config = config
        self._key = key = read_key(f"{config.section}.api_key_env", config.api_key_env)

        def connect() -> tuple[openai.AsyncOpenAI, asyncio.Semaphore]:
            limits = httpx.Limits(max_connections=config.concurrency)
            verify = config.base_url.startswith("https")
            client = openai.AsyncOpenAI(
                base_url=config.base_url,
                api_key=key or "none",
                timeout=config.timeout,
                max_retries=config.attempts - 1,
                http_client=httpx.AsyncClient(limits=limits, verify=verify),
            )
            return client, asyncio.Semaphore(config.concurrency)

        self._connections = Connections(self, connect, lambda made: made[0].close())

    def __reduce__(self) -> tuple[type[Self], tuple[ChatConfig]]:
        return type(self), (self.config,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; the client cannot be used afterwards."""
        self._connections.close()

    def ask(
        self,
        prompts: Sequence[str | Sequence[Message]],
        parse: Callable[[str], T],
        service: str,
        control: str | Sequence[Message] | None = None,
    ) -> list[T | ServiceError]:
        """Sends each prompt and parses the replies.

        Args:
            prompts: the text of one user message each, or a conversation to continue.
            parse: makes a result of a reply; raises ``ServiceError`` for one that has none.
            service: what errors call this service.
            control: a harmless prompt. It is sent where the server was there and a prompt got no
                result all the same: too slow, an error, a reply of no use. If this one gets a
                result, the text is to blame for its failure; if not, the service is.

        Returns:
            One entry per prompt, in order: the result, or the ``ServiceError`` that outlasted its
            retries.
        """

        async def one(prompt: str | Sequence[Message]) -> T | ServiceError:
            try:
                return parse(await self._reply(prompt, service))
            except ServiceError as error:
                return error

        async def all_of_them() -> list[T | ServiceError]:
            results = await asyncio.gather(*map(one, prompts))
            failed = [each for each in results if isinstance(each, ServiceError)]
            if not any(error.fault == "text" for error in failed):
                return results
            if control is not None and not isinstance(await one(control), ServiceError):
                return results
            outages = {id(error): ServiceError(service, error.what) for error in failed}
            return [outages.get(id(each), each) for each in results]

        return run(all_of_them())

    async def _reply(self, prompt: str | Sequence[Message], service: str) -> str:
        """The text of one reply; the fault of an error is ``text`` unless the server was away."""
        import httpx
        import openai

        messages: Any = [Message("user", prompt)] if isinstance(prompt, str) else prompt
        config = self.config
        client, gate = self._connections.get()
        # The library's time-outs are for single reads, so the whole call has one as well.
        longest = config.attempts * config.timeout + _LONGEST_PAUSE * (config.attempts > 1)
        try:
            async with gate, asyncio.timeout(longest):
                reply = await client.chat.completions.create(
                    model=config.model,
                    messages=[asdict(message) for message in messages],  # type: ignore[misc]
                    temperature=0,
                    max_tokens=_MAX_TOKENS,
                )
            content = reply.choices[0].message.content
        except (openai.APIStatusError, openai.APIConnectionError) as error:
            cause = error.__cause__
            if isinstance(error, openai.APIStatusError):
                away = error.status_code in OVERLOADED
                what = f"HTTP {error.status_code}: {error.response.text[:200]!r}"
            else:
                away = isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout)
                what = f"{error.message} ({cause!r})"
            fault = "service" if away else "text"
            raise ServiceError(service, self._named(what), fault=fault) from cause
        except TimeoutError:
            what = self._named(f"no complete reply after {longest:g} s")
            raise ServiceError(service, what, fault="text") from None
        # A proxy's page, or JSON of another shape; the library does not check.
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            what = self._named(f"no chat completion ({error!r:.200})")
            raise ServiceError(service, what, fault="text") from error
        if not isinstance(content, str):
            raise ServiceError(service, self._named("a reply without text"), fault="text")
        return content

    def _named(self, what: str) -> str:
        shown = what.replace(self._key, "...") if self._key else what  # some servers quote it
        return f"{self.config.base_url}, model {self.config.model}: {shown}"
