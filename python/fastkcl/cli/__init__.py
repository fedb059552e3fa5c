"""The command line for people. Sub-commands are imported when they are asked for."""
