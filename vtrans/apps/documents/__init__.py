"""Documents, such as HTML and subtitles, as lines to translate. An optional extra; no module imports torch."""
