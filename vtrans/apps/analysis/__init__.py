"""Reports on models and texts: parts and shared weights, nearest rows of E, attention maps, subword overlap."""
