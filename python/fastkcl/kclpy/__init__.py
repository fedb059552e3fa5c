"""The modules of amazon_kclpy, served by fastkcl: the same names, the same bytes on the wire, records decoded in Rust.

    from fastkcl.kclpy import kcl               # was: from amazon_kclpy import kcl
    from fastkcl.kclpy.v3 import processor      # was: from amazon_kclpy.v3 import processor

    kcl.KCLProcess(MyRecordProcessor()).run()

A program need not be changed at all: ``fastkcl run app.py`` serves the imports of ``amazon_kclpy``, and so does
`install` for programs that prefer a line of code.

    kcl          KCLProcess, Checkpointer, RecordProcessorBase (version 1)
    v2, v3       processor: RecordProcessorBase of versions 2 and 3
    messages     the inputs that a processor gets, Record
    dispatch     from a message's dict to its class
    helper       the class path and command of the Java daemon
    per_record   a processor that is called for each record, and checkpoints by itself

docs/migrating-from-amazon-kclpy.md has the gains of a program, the mended defects of the original, and the switch for
each.
"""

from fastkcl.kclpy.alias import install

__all__ = ["install"]
