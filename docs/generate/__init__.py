"""The generated parts of the reference documents: python -m docs.generate writes them."""
