"""Files with the strings of apps: JSON, ARB, Android, iOS, Xcode and Qt."""
