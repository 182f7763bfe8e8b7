"""Types, argument checks, caches and progress: what every room needs and none owns."""
