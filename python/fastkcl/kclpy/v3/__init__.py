"""Version 3 of the record processor: the end of a lease and the end of a shard are separate methods."""
