"""What the processes of a distributed run must agree on, and which of their rows are repeats."""

from __future__ import annotations

from dataaudit.errors import CorpusRefused
from dataaudit.training.corpus import Corpus


def agree(corpus: Corpus) -> None:
    """Stop every process of a distributed run unless all of them opened the same corpus, with the same held documents.

    Does nothing where `torch.distributed` is not in use. All processes must call it.

    Args:
        corpus: What this process opened.

    Raises:
        CorpusRefused: They differ, in every process.
    """
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return
    states: list[dict[str, str]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(states, corpus.state())
    for rank, state in enumerate(states):
        if names := sorted(name for name in state if state[name] != states[0][name]):
            raise CorpusRefused(
                f"rank {rank} opened another corpus than rank 0: {', '.join(names)}",
                "Hand the same manifest, policy and quarantine list to all processes.",
            )
