"""Models from and for Hugging Face: Marian, such as OPUS-MT, and Pegasus."""
