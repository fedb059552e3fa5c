"""For worker processes that import a program of `fastkcl run` again; see fastkcl.kclpy.alias."""

import sys

import fastkcl.kclpy

sys.modules[__name__] = fastkcl.kclpy
fastkcl.kclpy.install()
