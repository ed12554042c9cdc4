"""Boosted trees from sums: one tree a round, grown on what several parties' gradients add up to by feature and bin.

Nothing here knows the market. `Bins` come from the buyer's rows, an objective gives gradients, a `Source` (rows at
hand, or parties far away) sums them, `grow` makes a tree whose leaf values are sums of the parties' parts, an
`Ensemble` keeps the trees, and `lightgbm_text` writes the file that LightGBM opens.
"""
