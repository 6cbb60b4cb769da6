"""The numbers behind pictures and pages: `plots` draws them, `report` writes them down."""
