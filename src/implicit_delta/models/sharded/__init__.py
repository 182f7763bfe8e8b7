"""Rows that are a sum over shards, and the engines that do the sums."""

from implicit_delta.models.sharded.engine import Engine as Engine
from implicit_delta.models.sharded.rows import SumOver as SumOver
