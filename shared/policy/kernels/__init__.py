"""Scalar kernels of the policy library: compiled functions of one page, for use inside loops.

Callers in Python use the column functions of :mod:`shared.policy.value` and
:mod:`shared.policy.inverse`; compiled loops elsewhere (the scheduler's) import from here:

- :func:`shared.policy.kernels.crawl_value.crawl_value_scalar`
- :func:`shared.policy.kernels.crawl_value.value_and_psi`
- :func:`shared.policy.kernels.crawl_value.value_at_evidence`
- :func:`shared.policy.kernels.threshold.threshold_staleness_scalar`
- :func:`shared.policy.kernels.threshold.due_after_days_scalar`
"""
