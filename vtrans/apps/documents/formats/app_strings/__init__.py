"""Files with the strings of apps: JSON, ARB, Android, iOS, Java and .NET."""
