"""The options of every command of the training stack: what ``ssp NAME --help`` shows."""

from __future__ import annotations

from argparse import ArgumentParser

from ssp_env.worlds import WORLDS

PRESETS = "settings to start from: tiny, best, wiki, h200, paper-7b, paper-7b-code (default: tiny)"
SEARCH = "a server (`ssp serve`) or an index directory (`ssp index`), in place of the world's own"


def _settings(
    parser: ArgumentParser,
    *,
    model: str,
    seed: str | None = "decides all randomness (default: 0)",
    preset: str = PRESETS,
) -> None:
    """What all commands have that start from a preset: how its settings are changed."""
    parser.add_argument("--preset", metavar="NAME", help=preset)
    if seed is not None:
        parser.add_argument("--seed", type=int, metavar="N", help=seed)
    parser.add_argument("--world", metavar="NAME", help=f"one of {', '.join(WORLDS)}")
    parser.add_argument("--model", metavar="DIR", help=model)
    parser.add_argument("--search", metavar="URL|DIR", help=SEARCH)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other setting, repeatable",
    )


def train(parser: ArgumentParser) -> None:
    _settings(parser, model="a causal LM directory, in place of the tiny policy")
    parser.add_argument("--steps", type=int, metavar="N", help="training steps")
    parser.add_argument("--verifier", metavar="NAME", help="auto, world, policy, openai or none")
    parser.add_argument(
        "--solver-only", action="store_true", help="the proposer plays, but does not learn"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="the run directory (default: runs/PRESET-seedN, numbered if taken)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue the run in --out, or the newest one"
    )
    parser.add_argument("--quiet", action="store_true", help="show only errors and the result")
    parser.epilog = """\
Settings are named as in the run directory's config.yaml, values are YAML:
  --set learning.lr=1e-4 --set game.noise_documents=2 --set evaluation.per_group=50
Your own corpus and answers (JSON lines):
  --world files --set world_options.name=mine --set world_options.corpus_path=corpus.jsonl
  --set world_options.answers_path=answers.jsonl --set world_options.questions_path=questions.jsonl
A verifier behind an OpenAI-compatible API:
  --verifier openai --set openai.base_url=http://localhost:8000/v1 --set openai.model=NAME

Ctrl-C stops after the step in progress; --resume continues from there, to the same result."""


def eval(parser: ArgumentParser) -> None:
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="POLICY",
        help="model directories, or files that --out wrote; two are compared",
    )
    _settings(
        parser,
        model="the same as POLICY, such as RUN/checkpoints/STEP/policy",
        seed="which questions are drawn (default: 0, as in training)",
    )
    parser.add_argument(
        "--per-group",
        type=int,
        metavar="N",
        help="questions per hop count, per benchmark, or per group of --questions",
    )
    parser.add_argument("--questions", metavar="FILE", help="your own: question, answers, group")
    parser.add_argument(
        "--attempts",
        type=int,
        metavar="K",
        help="attempts at each, for avg@K, pass@K and majority@K (default: 1)",
    )
    parser.add_argument(
        "--prompts",
        metavar="SET",
        help="what the policy was trained on: search-r1, zerosearch, r-search, any other set or "
        "directory; NAME:FILE takes the instructions from FILE",
    )
    parser.add_argument(
        "--closed-book", action="store_true", help="also ask without search: what it knew anyway"
    )
    parser.add_argument(
        "--retriever",
        metavar="NAME",
        help="what search is worth: empty, random or lying",
    )
    parser.add_argument(
        "--player",
        choices=("engine", "api"),
        default="engine",
        help="a model here, or the one of openai.* (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="also write every game there, as JSON lines; a stopped one is gone on with, a "
        "finished one stays as it is",
    )
    parser.epilog = """\
  ssp eval base tuned --attempts 8 --set evaluation.temperature=1     # both, then a paired test
  ssp eval runs/a/checkpoints/step_000080/policy --closed-book --retriever lying
  ssp eval path/to/model --preset wiki --prompts search-r1            # its tags, format, top-k
  ssp eval --player api --preset wiki --set openai.base_url=http://localhost:8000/v1 \\
    --set openai.model=NAME"""


def bootstrap(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="where the model directory goes; must not exist"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="decides all randomness (default: %(default)s)",
    )
    parser.add_argument(
        "--width",
        type=int,
        metavar="N",
        help="width of the layers, a multiple of 64: 64, 128, 192 and 320 give 0.3, 0.9, 2 and "
        "5.2 million parameters (default: 128, as for the policy that ships)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="optimizer steps (default: 1,800, as for the policy that ships)",
    )
    parser.epilog = """\
The 1,800 steps take about twenty minutes on one core at width 128. There are no checkpoints:
Ctrl-C leaves nothing, and the next call begins anew. The same seed gives the same weights
on one kind of processor; on another they may differ (origin.json, beside them, names it)."""


def plot(parser: ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="run directories; those that differ in nothing but their seed become one line, their "
        "mean and range, and others have lines of their own",
    )
    parser.add_argument(
        "--out", default="plot.png", metavar="FILE", help="the picture (default: %(default)s)"
    )
    parser.add_argument(
        "--smooth",
        type=int,
        default=5,
        metavar="N",
        help="steps of the running mean (default: %(default)s)",
    )


def play(parser: ArgumentParser) -> None:
    _settings(parser, model="the policy to play against (default: the tiny policy)")
    parser.add_argument("--verifier", metavar="NAME", help="auto, world, policy, openai or none")
    parser.add_argument(
        "--role",
        choices=("solver", "proposer"),
        default="solver",
        help="what you play (default: %(default)s)",
    )
    parser.add_argument(
        "--games", type=int, metavar="N", help="stop after so many (default: never)"
    )
    parser.epilog = """\
As solver you get questions that the policy wrote; as proposer you get an answer and write the
question. What you type is a turn of the game, under its limits: s WORDS searches, a WORDS ends it.
  ssp play --role proposer --model runs/tiny-seed0/checkpoints/step_000080/policy"""


def plan(parser: ArgumentParser) -> None:
    _settings(parser, model="a model directory; its config.json is enough")
    parser.add_argument(
        "--gpus", type=int, metavar="N", help="GPUs there are (default: what the settings ask for)"
    )
    parser.add_argument(
        "--memory",
        type=float,
        metavar="GIB",
        help="memory of each of them in GiB (default: 80)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, in bytes")
    parser.epilog = """\
Nothing is loaded or allocated: the learner's passes are counted on fake tensors.
  ssp plan --preset h200 --model DIR --gpus 1 --memory 141

exit status: 0, or 2 if it does not fit (the message names the setting to change)"""


def export(parser: ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="RUN", help="a run directory (its newest checkpoint), or a checkpoint"
    )
    parser.add_argument("-o", "--out", required=True, metavar="DIR", help="the model directory")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="what weights are rounded to (default: %(default)s, as they are trained)",
    )
    parser.add_argument(
        "--model",
        metavar="DIR",
        help="what was trained; of a checkpoint of RLlib's or Tune's, which does not hold it",
    )
    parser.epilog = """\
  ssp export runs/tiny-seed0 -o my-policy --dtype bfloat16
  ssp export runs/tiny-seed0/checkpoints/step_000040 -o my-policy

DIR is what from_pretrained loads, vLLM serves and ssp eval scores. Learners that shared the policy
are put together, and adapters are merged."""


def questions(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run directory, finished or in progress")
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="write the questions there, as JSON lines"
    )
    parser.add_argument("--all", action="store_true", help="with those that were rejected")
    parser.add_argument(
        "--window",
        type=int,
        metavar="N",
        help="steps per column of the table (default: an eighth of the run)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.epilog = """\
A line of the file is a question: answer, path of searches, evidence, verdict, noise, solve rate
each time it was played, and where it comes from. To read it elsewhere:
  datasets.load_dataset("json", data_files="ledger.jsonl")"""


def probe(parser: ArgumentParser) -> None:
    _settings(parser, model="a model directory, whose tokenizer counts the budgets")
    parser.add_argument("--verifier", metavar="NAME", help="auto, world, policy, openai or none")
    parser.add_argument(
        "--rules",
        metavar="MODULE:NAME",
        help="a function of yours that returns ready Rules, in place of a preset's",
    )
    parser.add_argument(
        "--cheat",
        action="append",
        default=[],
        metavar="NAME",
        help="play this one: a name, MODULE:CLASS of your own, or all; repeatable (default: all)",
    )
    parser.add_argument("--list", action="store_true", help="list the cheats that ship, and end")
    parser.add_argument(
        "--games", type=int, default=200, metavar="N", help="games per cheat (default: 200)"
    )
    parser.add_argument(
        "--margin",
        type=float,
        default=0.1,
        metavar="X",
        help="what a cheat may be paid more than an honest player, per game (default: 0.1)",
    )
    parser.add_argument(
        "--player",
        choices=("scripted", "model"),
        default="scripted",
        help="who plays honestly: a script, or the model of openai.* (default: scripted)",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="NAME_OR_FILE",
        help="a cheat that is known to pay, and does not count, or a file of ssp probe --json: "
        "all that pays there; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.epilog = """\
Settings are named as for ssp train; docs/probe.md lists the cheats and shows how to write one:
  ssp probe --preset wiki --set game.noise_documents=8 --cheat base64 --cheat mine:Shout
  ssp probe --preset paper-7b --verifier openai --set openai.judge=true \\
    --set openai.base_url=http://localhost:8000/v1 --set openai.model=NAME

exit status: 0, 1 if a cheat pays more than an honest player by more than the margin, 2 for a
mistake, 3 if nobody can say because a service was down"""


def sweep(parser: ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="SWEEP", help="one that ships (--list), or a YAML file"
    )
    parser.add_argument("--list", action="store_true", help="list the sweeps that ship, and end")
    parser.add_argument("--dry-run", action="store_true", help="show what would be played, and end")
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="these arms alone, by name")
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        metavar="N",
        help="these seeds, in place of the sweep's; with --resume, they are added to it",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="training steps of each trial")
    parser.add_argument(
        "--parallel",
        type=int,
        metavar="N",
        help="trials at a time, at most (default: as many as there is room for)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="the sweep's directory (default: runs/sweeps/SWEEP)"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the trials in --out that have not ended"
    )
    parser.add_argument(
        "--tables",
        action="store_true",
        help="make the tables of the trials in --out that have ended, and end; others may go on",
    )
    parser.add_argument(
        "--reuse",
        nargs="+",
        metavar="DIR",
        help="copy trials that sweeps in these directories have played with the same settings, "
        "seed and code",
    )
    parser.add_argument(
        "--keep-checkpoints", action="store_true", help="finished trials keep their last policies"
    )
    parser.add_argument("--quiet", action="store_true", help="show only errors and the tables")
    _settings(
        parser,
        model="a causal LM directory, in place of the preset's",
        seed=None,
        preset="settings to start from, in place of the sweep's",
    )
    parser.epilog = """\
  ssp sweep noise --arms "no verification" "4 documents" --seeds 0 1 --steps 30
  ssp sweep mine.yaml --parallel 2 --set evaluation.per_group=50
  ssp sweep penalty --reuse runs/sweeps

Each trial is a run as of ssp train, in DIR/trials: ssp report, plot and replay read it. Ctrl-C or a
crash loses the steps since the last checkpoints; --resume goes on, to the same tables. RAY_ADDRESS
names a cluster. docs/sweeps.md shows how to write a sweep."""


def league(parser: ArgumentParser) -> None:
    parser.add_argument(
        "players",
        nargs="+",
        metavar="RUN|POLICY",
        help="run directories, for the policy they began with and all checkpoints that are there; "
        "model directories, as DIR or NAME=DIR",
    )
    parser.add_argument(
        "--answers",
        type=int,
        default=128,
        metavar="N",
        help="answers that each proposer asks about (default: %(default)s)",
    )
    parser.add_argument(
        "--attempts",
        type=int,
        metavar="N",
        help="how often each solver tries a question (default: as in training)",
    )
    parser.add_argument(
        "--out",
        default="runs/league",
        metavar="DIR",
        help="where tables, data and figure go (default: %(default)s)",
    )
    _settings(
        parser,
        model="whose tokenizer is used, in place of the run's",
        preset="settings to start from, in place of the first run's",
    )
    parser.epilog = """\
A run keeps its last two checkpoints, unless it is asked for more:
  ssp train --set checkpoints_kept=null --out runs/mine
  ssp league runs/mine
  ssp league before=runs/mine/checkpoints/step_000020/policy after=/models/other"""


def report(parser: ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run directories; their curves are laid over another"
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        help="the page (default: report-RUN.html, with the names of the runs)",
    )
    parser.add_argument(
        "--tokens",
        action="store_true",
        help="with token ids and log-probabilities, which double the size of the games",
    )
    parser.epilog = """\
One file that loads nothing from a network. Where its games would make it larger than 5 MB,
they lie in a folder beside it, named after it (report-RUN_games); keep both together. The
page is replaced if it is there, but under the default name only if it is of the same runs."""


def view(parser: ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run directories, of which any may be going on"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to bind (default: %(default)s)"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8321,
        help="port to bind, 0 for a free one (default: %(default)s)",
    )
    parser.add_argument("--open", action="store_true", help="also open it in a browser")
    parser.epilog = """\
Whoever reaches the address can read the runs: beyond this machine (--host 0.0.0.0), only in
a network that is trusted. From elsewhere, ssh -L 8321:localhost:8321 MACHINE is safer."""
