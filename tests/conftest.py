"""How `make test` deals the tests to its workers (pytest-xdist, `--dist loadgroup`).

A plain `pytest PATH` is not affected: it runs in one process, in the order of the files.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Few examples by default; `pytest --hypothesis-profile=thorough` tries many.
settings.register_profile("ssp", deadline=None, max_examples=25)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("ssp")

# What is imported stays; looking for garbage among it, again and again, takes seconds.
gc.disable()

# Ray's processes step back behind all others (by 15), and groups of tests that start them take
# longest: they would wait for the others' cores until these are through.
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ.setdefault("RAY_prestart_worker_first_driver", "0")  # idle ones, which cost seconds

TOGETHER = {
    "tests/experiments/run/": "runs",
    "tests/examples/test_examples.py": "forked",
    "tests/test_docs.py": "forked",
    "tests/agents/rllib/test_algorithm.py": "agents on Ray",
    "tests/agents/rllib/test_runners.py": "agents on Ray",
    "tests/agents/rllib/test_given_training.py": "agents on Ray",
    "tests/experiments/commands/test_eval.py": "runs with services",
    "tests/experiments/commands/test_kinds_of_runs.py": "kinds of runs",
    "tests/ssp_env/search/": "servers and clocks",
    "tests/ssp_env/judge/test_openai.py": "servers and clocks",
}
"""What one worker does alone: tests that share a Ray, a whole training run or the process that
theirs are forked from, and those that start servers or hold a clock against them, of which two
never run at once. The longest stand first."""


def pytest_configure(config: pytest.Config) -> None:
    """Starts one Ray for all workers, and for the commands and examples that they run."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        return

    from ray.cluster_utils import Cluster

    os.environ.update(of_actors())
    # It believes in GPUs, which only those that ask for them are given.
    has = {"num_cpus": 32, "num_gpus": 16, "object_store_memory": 512 * 1024**2}
    cluster = Cluster(initialize_head=True, head_node_args={**has, "include_dashboard": False})
    os.environ["RAY_ADDRESS"] = cluster.address
    config.add_cleanup(cluster.shutdown)


def of_actors() -> dict[str, str]:
    """Environment of Ray's actors: they import what lies beside the tests, and have one thread."""
    folders = {str(file.parent) for file in Path(__file__).parent.rglob("*.py")}
    return {"PYTHONPATH": os.pathsep.join([*sorted(folders), *sys.path]), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """One Ray for all tests of this process."""
    import ray
    from playful import quicken_connectors

    quicken_connectors()
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if "RAY_ADDRESS" not in os.environ:
        # It believes in GPUs, which only those that ask for them are given.
        quiet |= {"num_cpus": 3, "num_gpus": 16, "object_store_memory": 128 * 1024**2}
        quiet |= {"include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in of_actors().items():
            patch.setenv(name, value)
        ray.init(os.environ.get("RAY_ADDRESS", "local"), **quiet)
        yield
        ray.shutdown()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Deals by `group_of`.

    The marker `xdist_group` would do, but xdist 3.8 does not see it any more with pytest 9.2.
    """
    if config.getoption("dist") != "loadgroup":
        return None

    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log)


def pytest_collection_finish() -> None:
    """What has been imported stays, and is not looked through again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Starts the longest groups first, so that no worker has to wait for one at the end."""
    if not hasattr(config, "workerinput"):
        return

    order = {group: place for place, group in enumerate(dict.fromkeys(TOGETHER.values()))}
    items.sort(key=lambda item: order.get(group_of(item.nodeid), len(order)))


def group_of(nodeid: str) -> str:
    """Tests of one group run on one worker, in their order; without a rule it is their file."""
    found = (group for start, group in TOGETHER.items() if nodeid.startswith(start))
    return next(found, nodeid.partition("::")[0])
