"""Every formula Freshet stands on, exact and compiled: pure functions of columns of pages.

Rates are per day, times in days, importance has no dimension.

- :mod:`~shared.policy.model`: the page's parameters, their conversions and validation
- :mod:`~shared.policy.value`: the crawl value V, ψ, w, crawl rate, freshness
- :mod:`~shared.policy.inverse`: V⁻¹(Λ) and due times
- :mod:`~shared.policy.approximations`: GREEDY, GREEDY-CIS, GREEDY-CIS+, G-NCIS-APPROX-j
- :mod:`~shared.policy.harmonic`: the same for the harmonic penalty
- :mod:`~shared.policy.demand`, :mod:`~shared.policy.multipliers`: D(Λ), λ₀, λ_i, the optimum
- :mod:`~shared.policy.kernels`: the scalar kernels, for compiled loops elsewhere
"""
