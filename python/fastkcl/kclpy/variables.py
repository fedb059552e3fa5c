"""Environment variables of the drop-in; here, so that `fastkcl run` can set them before a program imports anything."""

ON_ERROR_VARIABLE = "FASTKCL_ON_ERROR"
"""Environment variable for ``KCLProcess(on_error=)``."""
DEAD_LETTER_VARIABLE = "FASTKCL_DEAD_LETTER"
"""Environment variable for ``KCLProcess(dead_letter=)``."""
VERBOSE_VARIABLE = "FASTKCL_VERBOSE"
"""Environment variable: if it is not empty, a line on the error file names the reader of messages."""
