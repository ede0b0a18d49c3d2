"""Files with the strings of apps: JSON, ARB, Android, iOS, Java, .NET and Qt."""
