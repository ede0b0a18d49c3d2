"""The server: the APIs of LibreTranslate and DeepL over vtrans models. An optional extra; no module imports torch."""
