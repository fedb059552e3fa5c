"""Version 3 of the record processor: the end of a lease and of a shard are methods of their own."""
