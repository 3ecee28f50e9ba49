"""Blocks: dense cells crossed with symmetric attributes, each block a matrix or a number."""
