"""Claims of the paper and our own with what was found, as the report shows them."""

import json

BEYOND = "not in the paper"  # how the paper's side of a claim of our own begins


def claim(claim, paper, ours, holds, why):
    """Record of one claim: its text, the paper's number, ours, whether it holds, and the reason."""
    return {"claim": claim, "paper": paper, "ours": ours, "holds": bool(holds), "why": why}


def by_author(claims):
    """Claims of the paper, and those of our own: questions and settings that it does not have."""
    of_paper = [claim for claim in claims if not claim["paper"].startswith(BEYOND)]
    return of_paper, [claim for claim in claims if claim["paper"].startswith(BEYOND)]


def save_claims(path, claims):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(claims, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def load_claims(path):
    return json.loads(path.read_text(encoding="utf-8"))
