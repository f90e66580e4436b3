"""What a classifier learns on some cells, tried on another: pure, arrays and frames in, arrays out."""
