"""The cluster that RAY_ADDRESS names, and folders that are too long for Ray's sockets."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from ssp_env.cli import main
from ssp_env.errors import ConfigError
from ssp_experiments.run import address

HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"
GRPC = bytes([0, 0, 18, 4, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("says", [HTTP, None, b""])
def test_a_cluster_that_does_not_answer_is_named_at_once(
    says: bytes | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(address, "PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = "127.0.0.1:{1}".format(*server.getsockname())

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                if says is None:
                    time.sleep(0.6)
                else:
                    connection.sendall(says)

        thread = threading.Thread(target=answer)
        thread.start()
        monkeypatch.setenv("RAY_ADDRESS", name)
        assert main(["train", "--steps", "1"]) == 2
        thread.join()
    assert f"RAY_ADDRESS = '{name}'" in capsys.readouterr().err
    # Now nobody listens there.
    assert main(["train", "--steps", "1"]) == 2
    assert f"RAY_ADDRESS = '{name}': nobody answers" in capsys.readouterr().err


def test_what_greets_as_ray_does_is_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:{1}".format(*server.getsockname()))
        thread = threading.Thread(target=lambda: server.accept()[0].sendall(GRPC))
        thread.start()
        address.check_ray()
        thread.join()
    for wrong in ("head", "head:x"):
        monkeypatch.setenv("RAY_ADDRESS", wrong)
        with pytest.raises(ConfigError, match="give HOST:PORT"):
            address.check_ray()


def test_a_long_temporary_folder_gives_way_to_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", "")  # put back afterwards
    monkeypatch.delenv("RAY_TMPDIR")
    monkeypatch.setenv("TMPDIR", "/scratch/of/a/job")
    address.check_ray()
    assert "RAY_TMPDIR" not in os.environ
    monkeypatch.setenv("TMPDIR", long := "/scratch/slurm/job_1234567/" + "tmp" * 10)
    address.check_ray()
    assert os.environ["RAY_TMPDIR"] == "/tmp"
    monkeypatch.setenv("RAY_TMPDIR", long)
    with pytest.raises(ConfigError, match=r"let RAY_TMPDIR name a folder of at most \d+ char"):
        address.check_ray()
