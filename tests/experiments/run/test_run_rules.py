"""The judge and the verifier of a run ask in the words of its prompt set."""

from __future__ import annotations

from experiments.config import load_preset, make_config
from experiments.run.checks import build_rules
from ssp_env.game.rules import Rules, fingerprint
from ssp_env.judge.openai import OpenAIJudge, OpenAIVerifier
from ssp_env.tokenizers import ByteTokenizer
from ssp_env.worlds.mini import MiniWorld


def rules(prompts: str) -> Rules:
    values = load_preset("paper-7b")
    config = make_config(values, {"game.prompts": prompts})
    return build_rules(config, MiniWorld(seed=3, entities=60), ByteTokenizer(), config.game)


def test_prompts_of_judge_and_verifier_follow_the_prompt_set() -> None:
    paper, plain = rules("paper"), rules("plain")
    for one, other in ((paper.judge, plain.judge), (paper.verifier, plain.verifier)):
        assert isinstance(one, OpenAIJudge | OpenAIVerifier)
        assert isinstance(other, OpenAIJudge | OpenAIVerifier)
        assert one.prompt != other.prompt
    ours, theirs = fingerprint(paper), fingerprint(plain)
    assert ours["judge"] != theirs["judge"], "a result depends on the judge's prompt"
