"""The contract between user code and the source of its records, for any source.

    errors        ProtocolError (Local, Remote), CheckpointError, ConfigurationError
    context       ShardContext: the shard that a processor works on
    checkpointer  Checkpointer: user code asks it to store positions
    processor     BatchProcessor: the methods of user code
    function      @processor: one function as a BatchProcessor
    failures      the reaction to failing user code: on_error, retries, dead_letter
    dead_letters  the files of records that a processor has failed on
    counters      a monitor's counts of a shard
    host          Host: the duties of a source

A source of records is the host of a processor: it calls its methods for one shard, in one thread, one call at a time,
stores its checkpoints and knows whether the shard is still its own. Users have the public names in `fastkcl`.
"""
