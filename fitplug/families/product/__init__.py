"""Products: attributes that are divided into blocks as well, since their product is too large."""
