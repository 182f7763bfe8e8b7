"""Claims of the paper with what was found, as the report shows them."""

import json


def claim(claim, paper, ours, holds, why):
    """Record of one claim: its text, the paper's number, ours, whether it holds, and the reason."""
    return {"claim": claim, "paper": paper, "ours": ours, "holds": bool(holds), "why": why}


def save_claims(path, claims):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(claims, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def load_claims(path):
    return json.loads(path.read_text(encoding="utf-8"))
