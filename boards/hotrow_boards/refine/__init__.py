"""Refine a placement of nextpnr's: simulated annealing that knows what is late.

`placed` reads and writes it, `wires` tells what is wired to what, `timing` how long that takes,
`tiles` what may lie where; `anneal` moves cells about, and `schedule` says for how long.
"""
