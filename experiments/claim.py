"""One claim of the paper with what was found, as the report shows it."""


def claim(claim, paper, ours, holds, why):
    """What is claimed, the paper's number, ours, whether it holds, and the reason."""
    return {"claim": claim, "paper": paper, "ours": ours, "holds": bool(holds), "why": why}
