"""The hub as notary: a consumer runs its own arbiter, keeps its hold-out, and reports every round.

`run` checks entries and keeps them, `handed` remembers what providers' answers were passed on, `answering` is the
process that answers for files at the hub and passes questions on to sites, `deeds` is what consumers do with all that.
"""
