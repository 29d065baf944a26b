"""A quarter of this run's seeds: each file of tests runs one, beside the others."""

from services.verify.simulation.campaign import judge, story_of, warm_up
from services.verify.simulation.plan import Scale

QUARTERS = 4


def broken_promise(seeds, number):
    """The story of the first seed of a quarter that breaks a promise; None: all hold."""
    warm_up()
    for seed in seeds[number - 1 :: QUARTERS]:
        if judge(seed, Scale()).broken:
            return "\n".join(story_of(seed, Scale()))
    return None
