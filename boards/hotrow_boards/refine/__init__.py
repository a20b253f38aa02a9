"""Refine a placement of nextpnr's: simulated annealing that knows what is late, and where too many
nets meet.

`placed` reads and writes it, `wires` tells what is wired to what, `timing` how long that takes,
`tiles` what may lie where, `crowd` how many nets each takes in. `targets` tells where late cells
should be, `moves` how cells go from place to place, and `anneal` which of that is done.
`refinement` does a round of it, `schedule` all of them, and in the end `repair` those for the few
paths that are the latest.
"""
