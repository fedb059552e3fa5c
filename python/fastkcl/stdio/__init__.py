"""The base of every worker child on stdin and stdout, for any protocol: descriptors, signals, an orderly end.

A daemon starts the child with pipes on fd 0 and fd 1 and knows it by nothing else: all bytes on fd 1 are protocol, and
the end of the pipe is the end of the child. So these two descriptors must be private, a signal to the process group
must not break a dialogue, and the process must really end.

    process      outline of a run: take the descriptors, watch signals, serve, end
    descriptors  fd 0 and 1 moved away, closed in forked children
    signals      the first SIGTERM, SIGINT or SIGHUP is noted, the second stops
    reports      lines and tracebacks for fd 2, exit codes
    uncaught     the interpreter's reports of exceptions, without control characters; for `fastkcl run`
    lossy        a standard error that drops output that a full pipe does not take; optional
    frozen       values that cannot change
    log          the logger "fastkcl", imported when there is something to log
    child, lines the other side: a child process as its parent holds it; no child imports them

Nothing here knows a message. A protocol (`fastkcl.kcl`, later others) is a function that takes the descriptors
and the signal watch, and returns at the end of its dialogue.
"""
