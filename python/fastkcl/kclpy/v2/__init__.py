"""Version 2 of the record processor: methods take one input object."""
