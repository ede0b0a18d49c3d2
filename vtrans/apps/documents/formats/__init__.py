"""A file per format of documents."""
