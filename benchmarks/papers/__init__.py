"""The papers' own tables, measured again; each module is one of them."""
