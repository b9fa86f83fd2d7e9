"""Faults, really done to training runs; what they leave is compared with runs that had none.

=========== ======================================================================================
``runners`` env runners are killed (-9) in mid-rollout, one, then both in one step; Ray restarts
            them. Games and weights are those of the run in one process to which nothing happened;
            an evaluation by a remote env runner of its own equals that in the main process.
``moved``   ``ssp train`` is begun without env runners, and resumed with two, then with one. Games,
            metrics and weights are those of a run without.
``learner`` ``ssp train`` with a remote learner, which is killed between two checkpoints: the run
            goes on from the last one, to the metrics of the run to which nothing happened. Killed
            a second time, it ends with one line that says so, and can be resumed.
``tune``    ``tune.Tuner("SSP")``, two trials, by the metric ``env_runners/episode_return_mean``.
``search``  ``ssp serve`` is killed in mid-run and started again after 20 seconds. Searches are made
            again, with back-off; games for which that was not enough are void and earn nobody
            anything, and the run goes on.
``judge``   a judge behind an API answers rubbish during one step. Its games are void and earn
            nobody anything; the steps before and after are complete.
``disk``    a checkpoint does not fit on the disk (a limit on the size of files). The run ends with
            one line that says so; it is resumed with room, to the metrics of an undisturbed run.
``shared``  the same for one of two remote learners that share the policy (FSDP2).
``memory``  an engine whose process has memory for some of its rows (a limit on its address space)
            samples the same tokens, fewer rows at a time; where not one fits, it says what to set.
``nan``     a policy whose weights are not numbers is refused before anything is played.
``broken``  the weights in a checkpoint are made no numbers, and the run goes on from it: its engine
            samples nothing, so it is stopped, and names the weights.
``diverged`` ``ssp train --set learning.lr=10`` is stopped within ten steps, with a checkpoint, its
            cause and what usually helps.
=========== ======================================================================================

Run it by ``python -m benchmarks.faults --out FILE``, which exits with 1 if anything differs.
"""
