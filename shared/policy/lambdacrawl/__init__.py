"""The policies that the literature compares with: crawl rates as solutions of convex problems.

`harmonic` is the LambdaCrawl family of [K], `binary` BinaryLambdaCrawl [A], `heuristics` the rules
of thumb, `learning` the versions that learn the change rates, `costs` what each policy costs,
`continuous` the optimum at even intervals [N], and `discrepancy` turns rates into an order of
crawls [A].
"""
