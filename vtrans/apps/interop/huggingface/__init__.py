"""Import and export of Hugging Face models: Marian, such as OPUS-MT, Pegasus, M2M100 and NLLB."""
