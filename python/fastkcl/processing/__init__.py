"""The contract between user code and the source of its records, whichever source that is.

    errors        ProtocolError (Local, Remote), CheckpointError, ConfigurationError
    context       ShardContext: the shard that a processor works on
    checkpointer  Checkpointer: user code asks it to store positions
    processor     BatchProcessor: what user code writes
    function      @processor: one function as a BatchProcessor
    failures      what happens when user code fails: on_error, retries, dead_letter
    dead_letters  the files of records that a processor has failed on
    counters      what a monitor counts of a shard
    host          Host: what a source does for all of these

A source of records is the host of a processor: it calls its methods for one shard, in one thread, one call at a time,
stores its checkpoints and knows whether the shard is still its own. Users have the public names in `fastkcl`.
"""
