"""Files of the strings of apps: JSON, ARB, Android and iOS."""
