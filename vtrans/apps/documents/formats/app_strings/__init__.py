"""Files with the strings of apps: JSON, ARB, Android, iOS, Xcode, Java, .NET and Qt."""
