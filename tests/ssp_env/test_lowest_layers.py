"""The lowest layers: what an import loads, settings, types, files on disk, calls over HTTP."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ssp_env
from ssp_env import net
from ssp_env.config import Settings
from ssp_env.disk import made_once, write_atomically
from ssp_env.errors import ConfigError, ServiceError, TransientServiceError
from ssp_env.game.config import GameConfig
from ssp_env.worlds import TEXT

ROOT = Path(ssp_env.__file__).parents[1]
HEAVY = {"torch", "ray", "transformers", "matplotlib", "faiss", "vllm", "pandas", *TEXT}


def loaded_by(code: str) -> set[str]:
    """The top-level modules that are loaded once the code has run in a process of its own."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(result.stdout.split())


def test_an_older_name_says_the_new_one() -> None:
    with pytest.raises(AttributeError, match="'Round': it is called GameBatch now"):
        _ = ssp_env.Round
    with pytest.raises(AttributeError, match=r"has no attribute 'Square'$"):
        _ = ssp_env.Square


def test_importing_and_playing_loads_nothing_heavy() -> None:
    loaded = loaded_by(
        "import ssp_env, ssp_env.cli, ssp_env.game.record\n"
        "env = ssp_env.env(); env.reset(seed=0); env.step(1); env.step(None); env.step(None)"
    )
    assert "ssp_env" in loaded
    assert not loaded & HEAVY
    assert not loaded & {"ssp_agents", "ssp_experiments"}


class Outer(Settings):
    """Settings that hold a section."""

    game: GameConfig = GameConfig()
    """The section."""
    steps: int = 1
    """A number."""


@pytest.mark.parametrize(
    ("values", "field", "fix"),
    [
        ({"game": {"attempts": 0}}, "game.attempts", "greater than 0"),
        ({"game": {"attemps": 1}}, "game.attemps", "did you mean 'attempts'?"),
        ({"game": {"noise_kind": "nea"}}, "game.noise_kind", "did you mean 'near'?"),
        ({"game": {"question_chars": [3, 1]}}, "game.question_chars", "give (fewest, most)"),
        ({"game": 3}, "game", "it is a section; set what is in it (game.attempts, "),
        ({"noise_documents": 5}, "noise_documents", "did you mean game.noise_documents?"),
        ({"stps": 1, "game": {"attempts": 0}}, "game.attempts", "also stps = 1"),
    ],
)
def test_errors_name_the_field_and_the_fix(values: dict[str, Any], field: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Outer(**values)

    assert caught.value.field == field
    assert fix in caught.value.fix


def test_values_are_converted_whichever_way_settings_are_made() -> None:
    made = GameConfig(attempts=np.int64(3), question_chars=[1, 2])

    assert made == GameConfig().replace(attempts=3, question_chars=(1, 2))
    assert type(made.attempts) is int
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(ConfigError):
        made.replace(attempts=0)


def test_a_folder_that_another_process_makes_meanwhile_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "made"

    def write(made: Path) -> None:
        made_once(folder, lambda other: (other / "file").write_text("first"))
        (made / "file").write_text("second")

    assert made_once(folder, write) == folder
    assert (folder / "file").read_text() == "first"
    assert [path.name for path in folder.parent.iterdir()] == ["made"], "nothing is left over"


def test_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("old")

    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", "new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "old")]


def attempt(failures: list[Exception], seconds: float = 60.0) -> str:
    """A call that fails as listed and then succeeds."""
    left = iter(failures)

    async def call() -> str:
        for error in left:
            raise error
        return "done"

    return net.run(net.retried(call, seconds))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("ssp_env.net._sleep", sleep)
    return slept


def test_a_server_asks_for_a_pause_in_figures_or_by_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(minutes=2), usegmt=True)
    for said, least, most in (("7", 7, 7), ("1.5", 1.5, 1.5), (later, 100, 120)):
        assert least <= net.asked_pause({"retry-after": said}) <= most
    for said in ("", "soon", "-3", "nan", "inf", "Wed, 21 Oct 2015 07:28:00 GMT"):
        assert net.asked_pause({"retry-after": said}) == 0


def down(retry_after: float | None = None) -> TransientServiceError:
    return TransientServiceError("search", "HTTP 503", retry_after)


def test_pauses_grow_with_jitter_and_a_server_may_ask_for_more(pauses: list[float]) -> None:
    assert attempt([down() for _ in range(7)]) == "done"
    for pause, least in zip(pauses, [0.25, 0.5, 1, 2, 4, 8, 8], strict=True):
        assert least <= pause <= 1.25 * least

    pauses.clear()
    assert attempt([down(7.5)]) == "done"
    assert pauses == [7.5]


def test_a_lasting_failure_is_an_outage_that_is_not_retried_again(pauses: list[float]) -> None:
    last = down()
    with pytest.raises(ServiceError, match=r"HTTP 503 \(after 4 calls\)") as raised:
        attempt([down(), down(), down(), last], seconds=1.5)
    assert type(raised.value) is ServiceError
    assert (raised.value.calls, raised.value.__cause__) == (4, last)
    with pytest.raises(ServiceError, match="after 1 call"):
        attempt([down(86_400)])
    assert len(pauses) == 3, "no pause beyond the deadline is begun"
