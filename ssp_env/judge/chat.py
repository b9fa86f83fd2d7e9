"""A client for servers that speak the OpenAI chat-completions protocol (vLLM, SGLang, llama.cpp, hosted ones)."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

import httpx

from ssp_env.errors import ConfigError, ServiceError, TransientServiceError
from ssp_env.retry import RetryPolicy

T = TypeVar("T")

_WORTH_ANOTHER_TRY = frozenset({408, 409, 429})
_MAX_REPLY_BYTES = 16 * 2**20
_EXCERPT = 200


@dataclass(frozen=True)
class ChatConfig:
    """Where the model is served and how it is called."""

    base_url: str
    """Root of the API, such as ``http://127.0.0.1:8000/v1``; ``/chat/completions`` is appended."""
    model: str
    """Name of the model, as the server calls it."""
    api_key_env: str | None = None
    """*Name* of the environment variable that holds the API key; ``None`` for a server that asks for none."""
    timeout: float = 60.0
    """Seconds for connecting, again for the reply to begin, and again for it to arrive in full."""
    max_tokens: int = 512
    """Most tokens of a reply."""
    concurrency: int = 16
    """Most calls under way at a time."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """How often a call is tried."""

    def __post_init__(self) -> None:
        if not re.match(r"https?://[^/\s]", self.base_url):
            raise ConfigError("chat.base_url", self.base_url, "give an address such as http://127.0.0.1:8000/v1")
        if not self.model:
            raise ConfigError("chat.model", self.model, "name a model that the server offers")
        if self.api_key_env is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.api_key_env):
            # The value is not repeated: it may be the key itself.
            raise ConfigError("chat.api_key_env", "...", "give the name of an environment variable, not the key")
        if not (self.timeout > 0 and math.isfinite(self.timeout)):
            raise ConfigError("chat.timeout", self.timeout, "a time-out is a number of seconds above zero")
        if self.max_tokens < 1:
            raise ConfigError("chat.max_tokens", self.max_tokens, "leave room for a reply of at least one token")
        if self.concurrency < 1:
            raise ConfigError("chat.concurrency", self.concurrency, "at least one call has to be under way")


class ChatClient:
    """Sends prompts, several at a time over kept-alive connections, at temperature 0.

    May be shared between threads. A pickled or copied client opens connections of its own.
    """

    def __init__(self, config: ChatConfig) -> None:
        """
        Raises:
            ConfigError: the environment variable for the key is not set, or the address is malformed.
        """
        self.config = config
        self._key = _read_key(config.api_key_env)
        self._url = config.base_url.rstrip("/") + "/chat/completions"
        try:
            httpx.URL(self._url)
        except httpx.InvalidURL as error:
            raise ConfigError("chat.base_url", config.base_url, f"give a well-formed address ({error})") from error
        self._http = httpx.Client(
            headers={"Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            # Waiting for one's turn is no fault of the server's, so it is not timed.
            timeout=httpx.Timeout(config.timeout, pool=None),
            limits=httpx.Limits(max_connections=config.concurrency, max_keepalive_connections=config.concurrency),
        )

    def __reduce__(self) -> tuple[type[ChatClient], tuple[ChatConfig]]:
        return type(self), (self.config,)

    def __enter__(self) -> ChatClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; the client cannot be used afterwards."""
        self._http.close()

    def ask(self, prompts: Sequence[str], parse: Callable[[str], T], service: str) -> list[T | ServiceError]:
        """Sends each prompt as one user message and parses the replies.

        Args:
            prompts: any number of prompts.
            parse: makes a result of a reply; raises ``TransientServiceError`` for one that is not well-formed,
                which is asked for again like any other failure.
            service: what errors call this service.

        Returns:
            One entry a prompt, in order: the result, or the ``ServiceError`` that outlived its retries.
        """

        def one(prompt: str) -> T | ServiceError:
            try:
                return self.config.retry.call(lambda: parse(self._reply(prompt, service)))
            except ServiceError as error:
                return error

        if not prompts:
            return []
        pool = ThreadPoolExecutor(min(self.config.concurrency, len(prompts)), thread_name_prefix="ssp-chat")
        try:
            return [future.result() for future in [pool.submit(one, prompt) for prompt in prompts]]
        finally:
            pool.shutdown(cancel_futures=True)

    def _reply(self, prompt: str, service: str) -> str:
        """The text of one reply.

        Raises:
            TransientServiceError: no reply, a reply that is not a chat completion, or HTTP 408, 409, 429, 5xx.
            ServiceError: any other status.
        """
        body = {
            "model": self.config.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": self.config.max_tokens,
        }
        try:
            with self._http.stream("POST", self._url, content=json.dumps(body)) as response:
                status, raw = response.status_code, self._read(response, service)
        except httpx.TimeoutException as error:
            raise TransientServiceError(service, f"{self._url}: {type(error).__name__}") from error
        except httpx.RequestError as error:
            raise TransientServiceError(service, f"{self._url}: {type(error).__name__}: {error}") from error
        if status != 200:
            again = status in _WORTH_ANOTHER_TRY or status >= 500
            kind = TransientServiceError if again else ServiceError
            raise kind(service, f"{self._url} answered with HTTP {status}: {self._excerpt(raw)}")
        content = _content(raw)
        if content is None:
            raise TransientServiceError(service, f"{self._url} sent no chat completion: {self._excerpt(raw)}")
        return content

    def _read(self, response: httpx.Response, service: str) -> bytes:
        # httpx times each read. A server that sends a byte now and then would pass that for ever.
        deadline = time.monotonic() + self.config.timeout
        raw = bytearray()
        for chunk in response.iter_bytes():
            raw += chunk
            if time.monotonic() > deadline:
                raise TransientServiceError(service, f"{self._url}: reply not complete after {self.config.timeout} s")
            if len(raw) > _MAX_REPLY_BYTES:
                raise TransientServiceError(service, f"{self._url}: reply of more than {_MAX_REPLY_BYTES} bytes")
        return bytes(raw)

    def _excerpt(self, raw: bytes) -> str:
        """The beginning of a body, for the log; some servers quote the key there."""
        text = raw.decode("utf-8", "replace")
        if self._key:
            text = text.replace(self._key, "...")
        return repr(text[:_EXCERPT])


def _content(raw: bytes) -> str | None:
    """``choices[0].message.content``; ``None`` where there is no such text."""
    try:
        content = json.loads(raw)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return content if isinstance(content, str) else None


def _read_key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError("chat.api_key_env", name, "set this environment variable to the API key")
    return key
