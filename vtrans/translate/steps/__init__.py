"""A line on its way from the reader to the writer, and the stages that it passes."""
