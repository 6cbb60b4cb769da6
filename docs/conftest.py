"""The pages' examples are tests; what builds the site, and what it builds, is not."""

collect_ignore = ["_build", "_extensions", "api/generated", "conf.py", "gallery", "images"]
