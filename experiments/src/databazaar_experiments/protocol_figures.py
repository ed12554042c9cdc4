"""Protocol `figures`: the settings behind the paper's published figures. Compare with protocol_text.py."""

from databazaar_experiments.settings import ImageSettings, MixtureSettings, Protocol, RuntimeSettings


def images(rounds: int, network: str, g_back_check: int, g_max_permutations: int) -> ImageSettings:
    return ImageSettings(
        rounds=rounds,
        network=network,  # type: ignore[arg-type]
        g_back_check=g_back_check,
        g_max_permutations=g_max_permutations,
        providers=100,
        samples=400,
        holdout=1000,
        data_seed=111,
        per_round=10,
        wrong_labels=(0.0, 0.2, 0.5, 0.9),
        group_sizes=(10, 10, 10, 70),
        corrupt="first",
        normalise=True,
        global_step=1.0,  # the update is (w⁺ − w)/γ_local, and γ_global = γ_local
        local_step=0.02,  # 0.1 on a batch's mean loss that is divided again by the batch size
        batch_size=5,
        momentum=0.1,
        halve_every=200,
        eta=0.2,  # 1.0 for a utility that is the negative loss divided by 5
        alpha=0.01,
        repeats="never",  # Algorithm 1 draws with replacement: see docs/results.md
        uniform="without replacement",
        pay="shifted",
        g_criterion="back-check",
        g_tolerance=0.01,
        g_credits_first=False,
        fed_back_check=10,
        fed_tolerance=0.05,
        fed_max_permutations=1000,  # the authors have no cap
    )


FIGURES = Protocol(
    name="figures",
    images={
        "mnist": images(500, "mlp", 10, 500),
        "fmnist": images(500, "mlp", 10, 500),
        "kmnist": images(500, "mlp", 10, 500),
        "cifar10": images(1000, "cnn", 30, 1000),
    },
    runtime=RuntimeSettings(providers=(50, 100, 200, 400), samples=100, share_per_round=0.1, rounds=500),
    mixture=MixtureSettings(
        providers=100,
        samples=500,
        holdout=100,
        dimensions=1000,
        noise=0.5,
        data_seed=123,
        per_round=10,
        rounds=1500,
        step=0.01,
        eta=0.001,
        alpha=0.01,
        repeats="once",
        uniform="without replacement",
        pay="shifted",
        g_criterion="back-check",
        g_back_check=100,
        g_tolerance=0.01,
        g_max_permutations=10_000,
        g_credits_first=False,
        fed_back_check=100,
        fed_tolerance=0.05,
        fed_max_permutations=1000,
    ),
)
