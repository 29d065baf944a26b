"""Compiles what the workers run, before tests wait for workers: `python tests/kernels.py`.

In a fresh clone no kernel is compiled yet. Workers compile what they need before they say that they
are ready, for a minute or two on a busy machine, and the tests with servers come first.
"""

from services.estimator.compilation import warm_up as warm_up_estimator
from services.ingester.debounce import Debouncer
from services.scheduler.warm_up import warm_up as warm_up_scheduler

if __name__ == "__main__":
    warm_up_scheduler()
    warm_up_estimator()
    Debouncer(1.0)
