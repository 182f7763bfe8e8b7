"""A fitted model that is a sum over shards, and the engines that do the sums."""

from implicit_delta.models.sharded.engine import Engine as Engine
from implicit_delta.models.sharded.model import ShardedModel as ShardedModel
