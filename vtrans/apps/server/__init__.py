"""The HTTP service: LibreTranslate's interface over models of vtrans. An optional extra; no module imports torch."""
