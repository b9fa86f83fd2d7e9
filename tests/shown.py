"""What a tracker has of a run, read from the tracker's own files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def steps_shown(tracker: str, run: Path, store: Path) -> list[int]:
    """Steps at which a run has shown its rate of valid games, one for each time.

    ``store`` is MLflow's database."""
    figure = "valid_rate"
    if tracker == "tensorboard":
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(run / "tensorboard"))
        events.Reload()
        return [point.step for point in events.Scalars(figure)]
    if tracker == "wandb":
        parts = [wandb_history(file) for file in sorted(run.glob("wandb/offline-run-*/*.wandb"))]
        return [step for part in parts for step, figures in part if figure in figures]
    from mlflow import MlflowClient

    name = (run / "tracked.txt").read_text().partition(" ")[2]
    history = MlflowClient(f"sqlite:///{store}").get_metric_history(name, figure)
    return sorted(point.step for point in history)


def wandb_history(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """Steps and figures in the order in which a file holds them."""
    from wandb.proto.wandb_internal_pb2 import Record

    held, data, at = [], file.read_bytes(), 7
    whole = b""
    while at + 7 <= len(data):
        # Blocks of 32 KiB of chunks: checksum, length, kind (1: whole, 2 to 4: its parts).
        if (left := 2**15 - at % 2**15) < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            record = Record.FromString(whole)
            whole = b""
            if record.WhichOneof("record_type") == "history":
                items = {
                    item.key or ".".join(item.nested_key): json.loads(item.value_json)
                    for item in record.history.item
                }
                held.append((record.history.step.num or items["_step"], items))
    return held
