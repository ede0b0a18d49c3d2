"""One module per document format."""
