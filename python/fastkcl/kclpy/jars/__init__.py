"""Holds no jars here: amazon_kclpy brings them along, see fastkcl.kclpy.helper."""
