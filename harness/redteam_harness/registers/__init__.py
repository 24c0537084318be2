"""The registers: what was attested of a run's isolation, and where its world differs from the real one.

`attestation` and `degraded`: what was checked of each conversation's walls, and what lacked. `mocks`: the
reviewed register of what mocks do not do (`fidelity.yaml`). `boundary`: which tool runs on the fork, which
is mocked. `people` and `fidelity`: what people measured of judges and personas.
"""
