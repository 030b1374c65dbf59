"""The cost of a member's trunk and decoder for images, beside the same networks in a plain loop.

    python benchmarks/image_members.py [--members 4] [--rows 256] [--rounds 7] [--threads 2]

Forward and backward passes; the decoder with a and y enumerated. Both ways are timed in turns in one
process; the figures are medians over rounds, and the ratio is the result.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pyro_fairvae.nn.images import ConvDecoder, SmallCNN
from pyro_fairvae.nn.members import Members
from pyro_fairvae.schema.image_rows import Pixels

FACES = Pixels(3, 32)
LATENT, HIDDEN = 16, 64


def trunk_steps(members: int, rows: int) -> tuple[Callable[[], None], Callable[[], None]]:
    x = torch.rand(members, rows, FACES.width) * 2 - 1
    together = Members(lambda _: SmallCNN(FACES), range(members))
    alone = [SmallCNN(FACES) for _ in range(members)]

    def loop() -> None:
        for network, own in zip(alone, x, strict=True):
            step(network, network(own))

    return lambda: step(together, together(x, in_dims=(0,))), loop


def decoder_steps(members: int, rows: int) -> tuple[Callable[[], None], Callable[[], None]]:
    def build(_: int = 0) -> ConvDecoder:
        return ConvDecoder(LATENT, 2, 2, HIDDEN, FACES)

    z = torch.randn(members, rows, LATENT)
    a, y = torch.arange(2).view(2, 1, 1), torch.arange(2).view(2, 1)
    together, alone = Members(build, range(members)), [build() for _ in range(members)]

    def vmapped() -> None:
        every_a, every_y = a.unsqueeze(-2).expand(2, 1, members, 1), y.unsqueeze(-2).expand(2, members, 1)
        step(together, together(z, every_a, every_y, in_dims=(-3, -2, -2), out_dims=-3))

    def loop() -> None:
        for network, own in zip(alone, z, strict=True):
            step(network, network(own, a, y))

    return vmapped, loop


def step(network: nn.Module, out: Tensor) -> None:
    network.zero_grad()
    out.square().mean().backward()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=4, help="members trained at once")
    parser.add_argument("--rows", type=int, default=256, help="rows in a step")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is timed")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    members, rows = arguments.members, arguments.rows
    print(f"{members} members, {rows} rows, {torch.get_num_threads()} threads, median of {arguments.rounds}")
    for name, ways in (
        ("SmallCNN", trunk_steps(members, rows)),
        ("ConvDecoder", decoder_steps(members, rows)),
    ):
        times: tuple[list[float], list[float]] = [], []
        for number in range(arguments.rounds + 1):
            for way, seconds in zip(ways, times, strict=True):
                start = time.perf_counter()
                way()
                if number:  # the first round warms up
                    seconds.append((time.perf_counter() - start) / members)
        together, alone = (1e3 * statistics.median(seconds) for seconds in times)
        print(
            f"{name:12s} Members {together:7.1f} ms   loop {alone:7.1f} ms a member and step   "
            f"ratio {together / alone:.2f}"
        )


if __name__ == "__main__":
    main()
