"""The commented market.toml that `bazaar init` writes."""

from __future__ import annotations

TEMPLATE = """\
# A data market. Run it with: bazaar run market.toml
# Paths are relative to this file. What is commented out shows another choice or the default.

[market]
name = "market"
budget = 1000              # what you will spend in all; whole number, or text such as "1000.00"
per_round = 10             # accesses bought in a round (K); a run has about budget / (K x price) rounds
seed = 0                   # the same seed gives the same run
patience = 10              # a run ends after so many rounds on end in which nobody answers
currency = "credits"       # how amounts are named
decimals = 0               # digits after the decimal point: 2 for euros and cents
# most_per_access = 5      # whoever costs more is not asked
# most_per_round = 40      # the pace: no round costs more

# [consumer]
# train = 0.5              # the share of the hold-out that the market starts from; or a file, "own.csv"; 0 is none
# name = "Harbour Bank"    # who buys, as statements and the ledger say it

[data]
holdout = "holdout.csv"    # your own CSV or Parquet file; it never reaches a provider
target = "target"          # the column to predict; rows without it are left out
task = "classification"    # or "regression"
# audit = 0.2              # the share that only says in the end what it was worth; or a file; 0 is none
# features = ["amount", "hour", "channel"]   # default: all columns but the target
# categorical = ["channel"]                  # default: the columns of names
# separator = ";"          # this and the next four are found out where they are not set
# decimal = ","
# encoding = "cp1252"
# missing = ["-", "n/a"]   # texts that stand for a missing value, beside the usual ones
# dates = "day-first"      # 03/04/2024 is the third of April; or "month-first"

[model]
kind = "mlp"               # "logistic" (classification), "linear" (regression), "mlp" or "cnn"
hidden = [32]              # sizes of the hidden layers, for mlp
# image = [1, 28, 28]      # channels, height and width, for cnn

[oracle]                   # what a provider does with your model when it is asked
kind = "local-sgd"         # or "full-gradient", "stochastic-gradient"
step = 0.1                 # the providers' learning rate
batch_size = 32
epochs = 1
steps = 64                 # an ask ends after so many mini-batches, however many rows a provider has
momentum = 0.0
# optimizer = "sgd"        # or "adam"
# weight_decay = 0.0

[utility]                  # how the hold-out scores an update
kind = "exp-loss"          # exp(-loss), within [0, 1]; or "negative-loss", "accuracy" (classification)

[training]
step = 1.0                 # how far the model moves along the average update
# halve_every = 50         # halve this step and the providers' every so many rounds

[sampler]                  # who is asked
kind = "thrifty"           # learns who helps, prefers the cheaper among equals, asks nobody twice in a round;
                           # or "osmd" (the paper's), "uniform", "uniform-without-replacement"
alpha = 0.01               # above 0, up to 1: the share of the money kept even over all providers
# switches = 1             # for osmd: eta and alpha from theory, for this many changes of the best provider
# eta = 0.05               # for osmd: or set eta and alpha by hand, without switches

# [aggregator]             # how the updates of a round become one step of the model
# kind = "mean"            # the mean of all that were valid; or one that a minority cannot spoil: "median",
                           # "trimmed-mean", "krum", "geometric-median", "centred-clipping", "fltrust"

# [payment]                # what an access is paid
# kind = "price-per-access"   # the provider's price, for every valid update; or "price-per-row": for each of its rows

# [[stops]]                # reasons to end before the budget is spent: none, one or several
# kind = "target-utility"
# utility = 0.9            # the run ends when the model's utility reaches this

# [[stops]]
# kind = "no-progress"     # the run ends when the utility no longer rises beyond chance
# rounds = 30              # the rounds that are looked at: a line is laid through their utilities
# least = 0.0              # the line must rise by more than this
# errors = 1.0             # and so many of its own standard errors

[defence]                  # against those who play for the money: copies, leaks, noise, poison
kind = "standard"          # pay beyond a floor waits until 8 or more answers show data; or "strict", "none" (the paper)
# cap = 0.25               # each rule is a setting: of the budget, one owner earns no more than this; false is off

[engine]
kind = "vectorized"        # all providers of a round at once; or "loop", "ray", "federated"
device = "auto"            # or "cpu", "cuda"
# workers = 2              # for ray: how many processes compute; default: one for each processor
# address = "host:6379"    # for ray: a cluster that is there; default: one that starts on this machine

# [federation]             # for engine.kind = "federated"; providers then need no file
# folder = "federation"    # what `bazaar federation init` made
# deadline = 30.0          # seconds that a round waits for its providers
# wait = 60.0              # seconds that a run waits for providers to connect before it begins
# consumer = "north-bank"  # for whom providers are asked; default: the consumer's name

# [ledger]
# url = "postgresql+psycopg://host/database"   # default: an SQLite file in the run's folder

[[providers]]
id = "north"
file = "north.csv"         # the hold-out's columns, in any order
# owner = "north"          # one owner may run several providers; default: the id
# price = "1"              # per access, in the market's currency
# most_accesses = 30       # how often a run may draw it
# price_changes = [{ from_round = 20, price = "2" }]   # announced: what an access costs from that round on

[[providers]]
id = "south"
file = "south.csv"
"""
