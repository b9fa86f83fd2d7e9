"""The policy wiki-small: its demonstrations, and the first steps of its bootstrap."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.ssp_env.worlds.few import few_passages

from benchmarks import wiki_small as module
from benchmarks.wiki_small import bootstrap, wiki_tokenizer
from ssp_agents.shipped.wiki_small.traces import TraceWriter
from ssp_env.game.config import WIKI_GAME
from ssp_env.game.protocol import Tags
from ssp_env.tokenizers import ByteTokenizer, HuggingFaceTokenizer

few_passages = few_passages


@pytest.fixture(scope="module")
def writer(few_passages: Path) -> TraceWriter:
    return TraceWriter(WIKI_GAME, HuggingFaceTokenizer(wiki_tokenizer()))


def test_a_name_has_the_same_tokens_wherever_it_stands(writer: TraceWriter) -> None:
    encode = writer.tokenizer.encode
    name = encode("Jane Austen")
    for text in ("by Jane Austen .", "<search> Jane Austen</search>", "Who is Jane Austen?"):
        ids = encode(text)
        assert any(ids[i : i + len(name)] == name for i in range(len(ids))), text
    for tag in Tags().all():
        assert len(encode(tag)) == 1


def test_copied_tokens_stand_where_the_demonstration_says(writer: TraceWriter) -> None:
    kinds = set()
    for trace in islice(writer.stream(np.random.default_rng(0)), 60):
        assert len(trace.ids) == len(trace.mask) == len(trace.source)
        for place, source in enumerate(trace.source):
            if source >= 0:
                assert trace.mask[place] == 1
                assert source < place
                assert trace.ids[source] == trace.ids[place]
        text = writer.tokenizer.decode(trace.ids)
        kinds.add(text.split()[0])
        last = Tags().closing("question" if "propose" in text[:12] else "answer")
        assert text.endswith(last)
    assert kinds == {"solve", "propose"}


def test_with_tags_of_several_tokens_a_thought_begins_with_a_document(few_passages: Path) -> None:
    game = WIKI_GAME.replace(prompts="compact", max_query_tokens=200, max_document_tokens=400)
    thoughts, tokenizer = list[str](), ByteTokenizer()
    for trace in islice(TraceWriter(game, tokenizer).stream(np.random.default_rng(0)), 20):
        own = zip(trace.ids, trace.mask, strict=True)
        text = tokenizer.decode([token for token, written in own if written])
        thoughts += re.findall("<think>(.*?)</think>", text, re.DOTALL)
    assert thoughts
    assert [thought for thought in thoughts if not thought.startswith("[")] == []


def test_a_stopped_bootstrap_ends_with_the_same_weights(
    few_passages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SAVED_EVERY", 1)
    monkeypatch.setattr("ssp_agents.shipped.tiny.bootstrap.POOL", 4)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    straight, _ = bootstrap(WIKI_GAME, whole, steps=4)

    def stop(step: int, loss: float) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bootstrap(WIKI_GAME, parts, steps=4, report=stop)
    resumed, _ = bootstrap(WIKI_GAME, parts, steps=4)
    for (name, ours), theirs in zip(
        straight.state_dict().items(), resumed.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs), name
