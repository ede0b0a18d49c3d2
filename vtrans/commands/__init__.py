"""The commands, a file each: read the options, build the objects, call one function, print."""
