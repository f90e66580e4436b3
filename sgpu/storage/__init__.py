"""Where things are kept: locations, Delta tables, Parquet, bundles."""
