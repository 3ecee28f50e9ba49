"""Trees: a hierarchy of any size, crossed with symmetric attributes and a few dense cells."""
