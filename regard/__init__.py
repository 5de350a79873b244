"""regard: a Transformer translator that you can train, trust and look into."""

__version__ = "0.1.0"
