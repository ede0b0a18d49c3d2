"""From lines to translations: windows, streams, chunks, and the choice among candidates."""
