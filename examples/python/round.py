"""One round between four ranks, here threads, with numpy: a token to two experts each, and the weighted sum of what
they make of it back. In a job of processes, Bootstrap.env() takes the place of Bootstrap.threads()."""

import threading

import moeway
import numpy as np

NUM_RANKS = 4


def run_rank(group: moeway.ThreadGroup, rank: int, results: dict) -> None:
    x = np.float32([[1, 2, 3, 4]])
    experts, weights = np.int32([[rank, 7 - rank]]), np.float32([[0.25, 0.75]])
    with moeway.Communicator(moeway.Bootstrap.threads(group, rank)) as communicator, \
            moeway.AllToAll(communicator, num_experts=8, topk=2, hidden=4, max_tokens=1, dispatch_dtype="f32",
                            row_dtype="f32", output_dtype="f32") as all_to_all:
        routing, received = all_to_all.dispatch(x, experts, weights)
        for expert, num_rows in zip(received.x, received.num_rows):
            expert[:num_rows] *= 10  # Instead of an expert.
        results[rank] = all_to_all.combine(routing, received.x)


def main() -> None:
    group, results = moeway.ThreadGroup(NUM_RANKS), {}
    ranks = [threading.Thread(target=run_rank, args=(group, rank, results)) for rank in range(NUM_RANKS)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    for rank, y in sorted(results.items()):
        print(f"rank {rank}: y = {' '.join(f'{value:g}' for value in y[0])}")


if __name__ == "__main__":
    main()
