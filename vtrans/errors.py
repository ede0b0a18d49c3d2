"""The errors that vtrans raises on purpose. Each message is one sentence for the user:
what is wrong, the value, what was allowed, what to do."""


class VtransError(Exception):
    """Something failed while running; the command line ends with exit code 1."""

    exit_code = 1


class InputError(VtransError):
    """The user's input, option, recipe or file is at fault; exit code 2."""

    exit_code = 2


class RecipeError(InputError):
    """A recipe, or a `--set`, has an unknown key or a value outside its range."""


class FileError(InputError):
    """A file or folder is missing, unreadable, truncated or of a foreign format."""
