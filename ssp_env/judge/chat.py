"""A client for OpenAI-compatible chat servers: vLLM, SGLang, llama.cpp, hosted ones."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import TypeVar

from ssp_env.errors import ConfigError, ServiceError, TransientServiceError
from ssp_env.net.http import Caller, check_key_name, check_url, read_key
from ssp_env.net.loop import shared
from ssp_env.net.retry import RetryPolicy

T = TypeVar("T")

_MAX_REPLY_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: str
    """``user`` or ``assistant``."""
    content: str


@dataclass(frozen=True)
class ChatConfig:
    """Where the model is served and how it is called."""

    base_url: str
    """Root of the API, such as ``http://127.0.0.1:8000/v1``; ``/chat/completions`` is appended."""
    model: str
    """Name of the model, as the server calls it."""
    api_key_env: str | None = None
    """*Name* of the environment variable with the API key; ``None`` if the server wants none."""
    timeout: float = 60.0
    """Seconds for one call, from connecting to the last byte of the reply."""
    max_tokens: int = 512
    """Most tokens of a reply."""
    concurrency: int = 16
    """Most calls in flight at a time."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """How often a call is tried."""

    def __post_init__(self) -> None:
        check_url("chat.base_url", self.base_url, "http://127.0.0.1:8000/v1")
        if not self.model:
            raise ConfigError("chat.model", self.model, "name a model that the server offers")

        check_key_name("chat.api_key_env", self.api_key_env)
        if not (self.timeout > 0 and math.isfinite(self.timeout)):
            raise ConfigError(
                "chat.timeout", self.timeout, "a time-out is a number of seconds above zero"
            )

        if self.max_tokens < 1:
            raise ConfigError(
                "chat.max_tokens", self.max_tokens, "leave room for a reply of at least one token"
            )
        if self.concurrency < 1:
            raise ConfigError(
                "chat.concurrency", self.concurrency, "at least one call has to be in flight"
            )


class ChatClient:
    """Sends prompts, several at a time over kept-alive connections, at temperature 0.

    May be shared between threads. A pickled or copied client opens its own connections.
    """

    def __init__(self, config: ChatConfig) -> None:
        """
        Raises:
            ConfigError: the environment variable for the key is not set.
        """
        self.config = config

        key = read_key("chat.api_key_env", config.api_key_env)
        url = config.base_url.rstrip("/") + "/chat/completions"
        self._caller = Caller(url, key, config.concurrency, _MAX_REPLY_BYTES)

    def __reduce__(self) -> tuple[type[ChatClient], tuple[ChatConfig]]:
        return type(self), (self.config,)

    def __enter__(self) -> ChatClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; the client cannot be used afterwards."""
        self._caller.close()

    def ask(
        self,
        prompts: Sequence[str | Sequence[Message]],
        parse: Callable[[str], T],
        service: str,
    ) -> list[T | ServiceError]:
        """Sends each prompt and parses the replies.

        Args:
            prompts: any number of prompts: each the text of one user message, or a conversation
                that the model is to continue.
            parse: makes a result of a reply; raises ``TransientServiceError`` for one that is not
                well-formed, which is asked for again like any other failure.
            service: what errors call this service.

        Returns:
            One entry per prompt, in order: the result, or the ``ServiceError`` that outlasted its
            retries.
        """

        async def one(prompt: str | Sequence[Message]) -> T | ServiceError:
            async def call() -> T:
                return parse(await self._reply(prompt, service))

            try:
                return await self.config.retry.call_async(call)
            except ServiceError as error:
                return error

        async def every() -> list[T | ServiceError]:
            return await asyncio.gather(*(one(prompt) for prompt in prompts))

        return shared().run(every())

    async def _reply(self, prompt: str | Sequence[Message], service: str) -> str:
        """The text of one reply.

        Raises:
            TransientServiceError: no reply, a reply that is not a chat completion, or a status
                worth another try.
            ServiceError: any other status.
        """
        messages = [Message("user", prompt)] if isinstance(prompt, str) else prompt
        body = {
            "model": self.config.model,
            "messages": [asdict(message) for message in messages],
            "temperature": 0,
            "max_tokens": self.config.max_tokens,
        }

        async with self._caller.turn():
            reply = await self._caller.post(json.dumps(body).encode(), self.config.timeout, service)

        # The status decides whether another try is worthwhile.
        if complaint := self._caller.complaint(reply, service):
            raise complaint

        content = _content(reply.body)
        if content is None:
            what = f"{self._caller.url} sent no chat completion: {self._caller.excerpt(reply.body)}"
            raise TransientServiceError(service, what)
        return content


def _content(raw: bytes) -> str | None:
    """``choices[0].message.content``; ``None`` where there is no such text."""
    try:
        content = json.loads(raw)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return content if isinstance(content, str) else None
