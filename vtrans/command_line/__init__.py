"""What the commands share: options made from settings, reading and writing lines, progress."""
