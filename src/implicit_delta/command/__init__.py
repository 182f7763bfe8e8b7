"""Command line: ``implicit-delta fit``, ``check`` and ``demo``."""
