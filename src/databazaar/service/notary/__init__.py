"""The hub as notary: a consumer runs its own arbiter, keeps its hold-out, and reports every round.

`run` checks entries, keeps them and the replies that were passed on, `responder` is the process that replies for files
at the hub and passes requests on to sites, `commands` is what consumers do with all that.
"""
