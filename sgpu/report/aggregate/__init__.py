"""The paper's aggregate tables, from the numbers of each cell alone."""
