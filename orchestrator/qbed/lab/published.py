# SPDX-License-Identifier: Apache-2.0
"""Flow sizes of data centres as papers measured them: points (bytes, cumulative probability) read off their figures,
between which sizes are spread evenly, as simulations of the field do.
"""

PUBLISHED: dict[str, tuple[tuple[int, float], ...]] = {
    # Data Center TCP (SIGCOMM 2010), Fig. 4: a web search cluster, queries left out. Mean 1.71 MB.
    "web-search": (
        (1, 0.0),
        (10_000, 0.15),
        (20_000, 0.2),
        (30_000, 0.3),
        (50_000, 0.4),
        (80_000, 0.53),
        (200_000, 0.6),
        (1_000_000, 0.7),
        (2_000_000, 0.8),
        (5_000_000, 0.9),
        (10_000_000, 0.97),
        (30_000_000, 1.0),
    ),
    # VL2 (SIGCOMM 2009), Fig. 2: a cluster for data mining. Eight of ten flows are below 10 KB; mean 12.7 MB.
    "data-mining": (
        (1, 0.0),
        (180, 0.1),
        (216, 0.2),
        (560, 0.3),
        (900, 0.4),
        (1_100, 0.5),
        (1_870, 0.6),
        (3_160, 0.7),
        (10_000, 0.8),
        (400_000, 0.9),
        (3_160_000, 0.95),
        (100_000_000, 0.98),
        (1_000_000_000, 1.0),
    ),
}
