"""The commands of the training stack. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ssp_env.commands.base import Command


def _configure_train(parser: ArgumentParser) -> None:
    parser.add_argument("--preset", default="tiny", help="settings to start from: tiny, h200 or paper-7b (default: tiny)")
    parser.add_argument("--out", metavar="DIR", help="the run directory (default: runs/PRESET-seedN)")
    parser.add_argument("--seed", type=int, metavar="N", help="decides all randomness")
    parser.add_argument("--steps", type=int, metavar="N", help="training steps")
    parser.add_argument("--world", metavar="NAME", help="mini, wiki-mini, or files (paths through --set world_options.…)")
    parser.add_argument("--model", metavar="DIR", help="a causal LM directory in place of the tiny policy")
    parser.add_argument("--verifier", metavar="NAME", help="auto, world, policy, openai or none")
    parser.add_argument("--solver-only", action="store_true", help="leave the proposer as it is")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument("--quiet", action="store_true", help="show nothing but errors and the result")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any other setting, such as learning.lr=1e-4"
    )
    parser.epilog = "Ctrl-C stops after the step in progress; --resume goes on from there."


def _run_train(arguments: Namespace) -> int:
    from experiments.train_command import run

    return run(arguments)


def _configure_eval(parser: ArgumentParser) -> None:
    parser.add_argument("--model", metavar="DIR", help="a causal LM directory, such as RUN/checkpoints/STEP/policy")
    parser.add_argument("--preset", default="tiny", help="settings to start from (default: tiny)")
    parser.add_argument("--world", metavar="NAME", help="mini, wiki-mini or files")
    parser.add_argument("--per-group", type=int, metavar="N", help="questions a hop count, or a benchmark")
    parser.add_argument("--seed", type=int, metavar="N", help="which questions are drawn")
    parser.add_argument("--out", metavar="FILE", help="also write every answered question there (JSON lines)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any other setting")


def _run_eval(arguments: Namespace) -> int:
    from experiments.eval_command import run

    return run(arguments)


def _configure_bootstrap(parser: ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="DIR", help="where the model directory goes; must not exist")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="decides all randomness (default: 0)")
    parser.add_argument("--steps", type=int, metavar="N", help="optimizer steps")


def _run_bootstrap(arguments: Namespace) -> int:
    from experiments.bootstrap_command import run

    return run(arguments)


def _configure_plot(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories; runs of one label are averaged")
    parser.add_argument("--out", default="plot.png", metavar="FILE", help="the picture (default: plot.png)")
    parser.add_argument("--smooth", type=int, default=5, metavar="N", help="steps of the running mean (default: 5)")


def _run_plot(arguments: Namespace) -> int:
    from experiments.plot_command import run

    return run(arguments)


TRAIN = Command("train", "self-play training: propose, verify, solve, learn", _configure_train, _run_train)
EVAL = Command("eval", "score a policy on questions that it never trains on", _configure_eval, _run_eval)
BOOTSTRAP = Command("bootstrap", "make the tiny policy and its tokenizer from nothing", _configure_bootstrap, _run_bootstrap)
PLOT = Command("plot", "draw rewards, hops and validity of runs against steps", _configure_plot, _run_plot)
