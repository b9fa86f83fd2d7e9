"""A client for OpenAI-compatible chat servers: vLLM, SGLang, llama.cpp, hosted ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, TypeVar

from pydantic import Field, model_validator

from ssp_env.config import Settings
from ssp_env.errors import Fault, MissingExtra, ServiceError
from ssp_env.net import OVERLOADED, Client, check_key_name, check_url, read_key, run

T = TypeVar("T")

Message = dict[str, str]
"""One message of a conversation: its ``role``, ``user`` or ``assistant``, and ``content``."""

CALLS = 4
"""Calls in all for a prompt, with growing pauses between them."""
TIMEOUT = 120.0
"""Seconds for one of them."""
AT_ONCE = 16
"""Most calls in flight at a time."""
_MAX_TOKENS = 512


class ChatConfig(Settings):
    """A model behind an OpenAI-compatible API, for judging, verifying and playing."""

    section: ClassVar[str] = "openai"

    base_url: str
    """Root of the API, such as ``http://127.0.0.1:8000/v1``; ``/chat/completions`` is appended."""
    model: str = Field(min_length=1)
    """Name of the model, as the server calls it."""
    api_key_env: str | None = None
    """*Name* of the environment variable with the API key; ``None`` if the server wants none."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_url(f"{self.section}.base_url", self.base_url, "http://127.0.0.1:8000/v1")
        check_key_name(f"{self.section}.api_key_env", self.api_key_env)
        return self


class ChatClient(Client[Any]):
    """Sends prompts, several at a time over kept-alive connections.

    May be shared between threads. A pickled or copied client opens its own connections."""

    def __init__(self, config: ChatConfig, temperature: float = 0.0) -> None:
        try:
            # Imported here: settings are read without them.
            import httpx
            import openai
        except ImportError as error:
            raise MissingExtra("a model that is asked", "services") from error

        self.config, self._temperature = config, temperature
        self._key = key = read_key(f"{config.section}.api_key_env", config.api_key_env)

        def connect() -> tuple[openai.AsyncOpenAI, asyncio.Semaphore]:
            limits = httpx.Limits(max_connections=AT_ONCE)
            verify = config.base_url.startswith("https")
            client = openai.AsyncOpenAI(
                base_url=config.base_url,
                api_key=key or "none",
                timeout=TIMEOUT,
                max_retries=CALLS - 1,
                http_client=httpx.AsyncClient(limits=limits, verify=verify),
            )
            return client, asyncio.Semaphore(AT_ONCE)

        super().__init__((config, temperature), connect, lambda made: made[0].close())
        self._answered = 0

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
                result, the text is to blame for its failure; if not, the service is. It is not
                needed for a prompt beside which others, of any call, got results: what they got
                through cannot be down, but may still be busy with that text.

        Returns one entry per prompt, in order: the result, or the error that outlasted its retries.
        """

        doubtful: list[ServiceError] = []

        async def one(prompt: str | Sequence[Message]) -> T | ServiceError:
            client, gate = self.connected()
            async with gate:
                before = self._answered
                try:
                    result = parse(await self._reply(client, prompt, service))
                except ServiceError as error:
                    if error.fault == "text" and self._answered == before:
                        doubtful.append(error)
                    return error
                self._answered += 1
                return result

        async def all_of_them() -> list[T | ServiceError]:
            results = await asyncio.gather(*map(one, prompts))
            if doubtful and (control is None or isinstance(await one(control), ServiceError)):
                for error in doubtful:
                    error.fault = "service"
            return results

        return run(all_of_them())

    async def _reply(self, client: Any, prompt: str | Sequence[Message], service: str) -> str:
        """The text of one reply; the fault of an error is ``text`` unless the server was away."""
        import httpx
        import openai

        messages: Any = prompt
        if isinstance(prompt, str):
            messages = [{"role": "user", "content": prompt}]
        # The library's time-outs are for single reads, so calls and pauses have one together.
        longest = (CALLS + 1) * TIMEOUT
        fault: Fault = "text"
        try:
            async with asyncio.timeout(longest):
                reply = await client.chat.completions.create(
                    model=self.config.model,
                    messages=messages,
                    temperature=self._temperature,
                    max_tokens=_MAX_TOKENS,
                )
            content = reply.choices[0].message.content
            if isinstance(content, str):
                return content
            what = "a reply without text"
        except TimeoutError:
            what = f"no complete reply after {longest:g} s; restart it"
        except openai.APIStatusError as error:
            what = f"HTTP {error.status_code}: {error.response.text!r}"
            if error.status_code in OVERLOADED:
                fault = "service"
        except openai.APIConnectionError as error:
            what = f"{error.message} ({error.__cause__!r})"
            if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                fault = "service"
        # A proxy's page, or JSON of another shape; the library does not check.
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            what = f"no chat completion ({error!r})"

        if self._key:  # some servers quote it
            what = what.replace(self._key, "...")
        where = f"{self.config.base_url}, model {self.config.model}"
        raise ServiceError(service, f"{where}: {what:.300}", fault=fault)
